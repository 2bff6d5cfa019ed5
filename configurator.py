"""Settings from a script's own first lines, from config files and from the command line, all checked.

    python train.py config/geo3k.py config/tiny_vl.py --tau=1   files in order, then flags: the last word wins
    python train.py --help                                      every setting with its default and its comment

A script lists its settings as plain assignments (`tau = 0.8  # what it means`) above its call of configure().
A config file is a small Python file that assigns some of them; it is run, so use only files you trust. Names
must exist, values must have the default's type, and errors name key, value and cure.
"""
import ast
import difflib
import io
import os
import runpy
import sys
import tokenize
from pathlib import Path


def fail(message):
    """End the program with one line on stderr; under torchrun only rank 0 speaks."""
    sys.exit(f'error: {message}' if os.environ.get('RANK', '0') == '0' else 1)


def read_settings(script):
    """The assignments above configure() in `script` -> {name: (default, comment)}, in order."""
    source = Path(script).read_text(encoding='utf-8')
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip('# ') for t in tokens if t.type == tokenize.COMMENT}  # by line
    settings = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign):
            continue
        if isinstance(node.value, ast.Call):  # config = configure(...): the end of the settings
            break
        settings[node.targets[0].id] = (ast.literal_eval(node.value), comments.get(node.end_lineno, ''))
    return settings


def check(key, value, default, where):
    """`value` as the type of `default` (int is fine for float, 1e3 for int); default None takes anything."""
    if type(default) is float and type(value) is int:
        return float(value)
    if type(default) is int and type(value) is float and value.is_integer():
        return int(value)
    wanted, got = type(default).__name__, type(value).__name__
    if default is not None and got != wanted:
        fail(f'{key} = {value!r} ({where}) is {got}; it must be {wanted}, for example {key} = {default!r}')
    return value


def parse(key, text, default, where):
    """The text behind `--key=` -> a value: strings stay strings, true / false may be lower case."""
    if isinstance(default, str):
        return text
    try:
        value = ast.literal_eval({'true': 'True', 'false': 'False'}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        value = text  # no literal: check() takes it only where the default is None
    return check(key, value, default, where)


def configure(*scripts, argv=None, base=None):
    """The settings of `scripts` (the first is the one that runs) -> {name: value}.

    Defaults come first, then `base` (a checkpoint's own settings), then files and flags of `argv` in order.
    Anything unknown or of a wrong type ends the program with an error that names key, value and what to do.
    """
    argv = sys.argv[1:] if argv is None else argv
    settings = {}
    for script in reversed(scripts):  # the script that runs has the last word on a shared name
        settings.update(read_settings(script))
    if '--help' in argv or '-h' in argv:
        print(f'usage: python {Path(scripts[0]).name} [config/FILE.py ...] [--key=value ...]')
        for key, (default, comment) in settings.items():
            print(f'  --{key + "=" + repr(default):<42} {comment}')
        sys.exit(0)
    config = {key: (base or {}).get(key, default) for key, (default, _) in settings.items()}

    def known(key, where):
        if key not in settings:
            near = ''.join(f'did you mean {name!r}? ' for name in difflib.get_close_matches(key, settings, 1))
            fail(f'unknown setting {key!r} in {where}: {near}python {Path(scripts[0]).name} --help lists all')
        return settings[key][0]

    files = [word for word in argv if not word.startswith('--')]
    for file in files:
        if not Path(file).is_file():
            fail(f'config file {file!r} does not exist; flags are written --key=value')
        for key, value in runpy.run_path(file).items():
            if not key.startswith('_') and not hasattr(value, '__name__'):  # imports and functions
                config[key] = check(key, value, known(key, file), file)
    for flag in (word for word in argv if word.startswith('--')):
        key, equals, text = flag[2:].partition('=')  # only the first '=' splits
        default = known(key, 'the command line')
        if not equals and default is not True and default is not False:
            fail(f'--{key} needs a value: --{key}={default!r}')
        config[key] = parse(key, text if equals else 'true', default, 'the command line')
    return config
