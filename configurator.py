"""Settings from a script's own first lines, from config files and from the command line, all checked.
    python train.py config/geo3k.py config/tiny_vl.py --tau=1   files in order, then flags: the last word wins
A script assigns its settings (`tau = 0.8  # what it means`) above its call of configure(), a config file some
of them; it is run: use only files you trust. Names must exist, types are the defaults', and comments bind:
"'a' | 'b'" at the start lists all choices, "at least 2", "at most 1" are bounds. Errors name the cure."""
import ast
import difflib
import os
import re
import runpy
import sys
from contextlib import suppress
from pathlib import Path

def fail(message):
    """End the program with one line on stderr; under torchrun only rank 0 speaks."""
    sys.exit(f'error: {message}' if os.environ.get('RANK', '0') == '0' else 1)

def read_settings(script):
    """The assignments above configure() in `script` -> {name: (default, comment)}, in order."""
    source = Path(script).read_bytes()  # bytes: ast counts columns in them
    lines = source.splitlines()
    above = ast.parse(re.split(rb'(?m)^\w+ = configure\(', source)[0]).body
    return {node.targets[0].id: (ast.literal_eval(node.value),
                                 lines[node.end_lineno - 1][node.end_col_offset:].decode().strip(' #'))
            for node in above if isinstance(node, ast.Assign)}

def check(key, value, settings, where, is_text=False):
    """`value` (`is_text`: what follows a flag's first '=') in the default's type; None takes any type."""
    if key not in settings:
        near = ''.join(f'did you mean {name!r}? ' for name in difflib.get_close_matches(key, settings, 1))
        fail(f'unknown setting {key!r} in {where}: {near}--help lists all')
    default = settings[key][0]
    if is_text and not isinstance(default, str):
        with suppress(ValueError, SyntaxError):  # no literal: a string, which fits where the default is None
            value = ast.literal_eval(value.capitalize() if value.lower() in ('true', 'false') else value)
    if {type(value), type(default)} == {int, float} and value % 1 == 0:  # 1 is fine for 1.0, 1e3 for 1000
        value = type(default)(value)
    if default is not None and type(value) is not type(default):
        fail(f'{key} = {value!r} ({where}) must be {type(default).__name__}, for example {default!r}')
    return value

def configure(*scripts, argv=None, base=None):
    """Defaults of `scripts` (the first wins), then `base` (a checkpoint's), files, flags -> {name: value}."""
    argv = sys.argv[1:] if argv is None else argv
    settings = {key: found for script in reversed(scripts) for key, found in read_settings(script).items()}
    if '--help' in argv or '-h' in argv:
        print(f'usage: python {Path(scripts[0]).name} [config/FILE.py ...] [--key=value ...]')
        for key, (default, comment) in settings.items():
            print(f'  --{key + "=" + repr(default):<42} {comment}')
        sys.exit(0)
    config = {key: (base or {}).get(key, default) for key, (default, _) in settings.items()}
    for file in (word for word in argv if not word.startswith('--')):
        if not Path(file).is_file():
            fail(f'config file {file!r} does not exist; flags are written --key=value')
        config |= {key: check(key, value, settings, file) for key, value in runpy.run_path(file).items()
                   if not key.startswith('_') and not hasattr(value, '__name__')}  # imports and functions
    for key, equals, text in (word[2:].partition('=') for word in argv if word.startswith('--')):
        config[key] = check(key, text if equals else True, settings, 'the command line', is_text=bool(equals))
    for key, (_, comment) in settings.items():
        choices = re.match(r"'[^']*'( \| '[^']*')+", comment)
        if choices and config[key] not in re.findall("'([^']*)'", choices[0]):
            fail(f'{key} = {config[key]!r} must be one of {choices[0]}')
        for word, bound in re.findall(r'at (least|most) (-?\d+(?:\.\d+)?)', comment):  # nan keeps none
            if not (config[key] >= float(bound) if word == 'least' else config[key] <= float(bound)):
                fail(f'{key} = {config[key]!r} must be at {word} {bound}')
    return config
