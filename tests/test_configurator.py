"""configurator.py: what composes, what is refused, and with which words (pitfall K1)."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from configurator import configure, read_settings

ROOT = Path(__file__).parents[1]
SCRIPT = '''"""A script with settings of every kind."""
import os

# run
out_dir = 'out'        # where results go
resume = None          # a checkpoint; None: a fresh start
wandb = False          # also log there
verbose = True         # talk
# optimizer
learning_rate = 1e-4   # per update; # is not a comment's end
max_new_tokens = 16    # longest response
examples = []          # [[question, answer], ...]
config = configure(__file__)
hidden = 3             # not a setting: it stands below configure()
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / 'script.py'
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def settings(script):
    return lambda *argv: configure(script, argv=[str(word) for word in argv])


def write(path, text):
    path.write_text(text)
    return path


def refusal(settings, *argv):
    """The one line with which `argv` is refused."""
    with pytest.raises(SystemExit) as error:
        settings(*argv)
    message = str(error.value)
    assert message.startswith('error: ') and '\n' not in message
    return message


def test_defaults(settings):
    assert settings() == {'out_dir': 'out', 'resume': None, 'wandb': False, 'verbose': True,
                          'learning_rate': 1e-4, 'max_new_tokens': 16, 'examples': []}


def test_files_and_flags_compose_in_order(settings, tmp_path):
    """Later files win over earlier ones, flags over all files, wherever they stand."""
    first = write(tmp_path / 'first.py', "out_dir = 'first'\nlearning_rate = 1e-3\nmax_new_tokens = 32\n")
    second = write(tmp_path / 'second.py', "out_dir = 'second'\nlearning_rate = 1e-2\n")
    config = settings('--learning_rate=0.5', first, second)
    assert (config['out_dir'], config['learning_rate'], config['max_new_tokens']) == ('second', 0.5, 32)
    assert settings(second, first)['out_dir'] == 'first'
    assert settings('--out_dir=a', '--out_dir=b')['out_dir'] == 'b'
    assert settings(first)['verbose'] is True


def test_base_lies_between_defaults_and_files(script, tmp_path):
    """A checkpoint's own settings are a base: files and flags win; names of old times are left out."""
    file = write(tmp_path / 'file.py', 'max_new_tokens = 32\n')
    base = {'out_dir': 'trained', 'max_new_tokens': 8, 'learning_rate': 0.5, 'of_old_times': 1}
    config = configure(script, argv=[str(file), '--learning_rate=1'], base=base)
    assert (config['out_dir'], config['max_new_tokens'], config['learning_rate']) == ('trained', 32, 1.0)
    assert 'of_old_times' not in config


def test_the_running_script_wins_over_the_others(script, tmp_path):
    other = write(tmp_path / 'other.py', "out_dir = 'other'  # elsewhere\nbatch = 2\nc = configure()\n")
    config = configure(script, other, argv=['--batch=3'])
    assert config['out_dir'] == 'out' and config['batch'] == 3


def test_files_may_use_python(settings, tmp_path):
    """Imports, functions and names with an underscore are no settings."""
    text = 'import os\nfrom pathlib import Path\ndef twice(x):\n    return 2 * x\n_half = 8\n'
    file = write(tmp_path / 'file.py', text + 'max_new_tokens = twice(_half)\n')
    config = settings(file)
    assert config['max_new_tokens'] == 16 and not {'os', 'Path', 'twice', '_half'} & set(config)


def test_file_is_found_from_any_folder(settings, tmp_path, monkeypatch):
    """A relative path is one of the working folder, and a file sees its own place as __file__."""
    write(tmp_path / 'file.py', 'from pathlib import Path\nout_dir = Path(__file__).stem\n')
    monkeypatch.chdir(tmp_path)
    assert settings('file.py')['out_dir'] == 'file'


def test_unknown_key(settings, tmp_path):
    """K1: the nearest name and the place are named."""
    message = refusal(settings, '--learning_rte=1')
    assert "'learning_rte'" in message and "did you mean 'learning_rate'" in message
    assert 'command line' in message
    file = write(tmp_path / 'file.py', 'max_new_token = 3\n')
    message = refusal(settings, file)
    assert "'max_new_token'" in message and "'max_new_tokens'" in message and str(file) in message
    message = refusal(settings, '--qqqq=1')
    assert 'did you mean' not in message and '--help' in message
    refusal(settings, '--hidden=4')
    refusal(settings, '--')


@pytest.mark.parametrize('flag, got, wanted', [
    ('--learning_rate=fast', "'fast'", 'float'), ('--learning_rate=True', 'True', 'float'),
    ('--max_new_tokens=2.5', '2.5', 'int'), ('--max_new_tokens=many', "'many'", 'int'),
    ('--max_new_tokens=true', 'True', 'int'), ('--max_new_tokens=', "''", 'int'), ('--wandb=1', '1', 'bool'),
    ('--wandb=yes', "'yes'", 'bool'), ('--examples=3', '3', 'list'), ('--examples=[1', "'[1'", 'list'),
    ('--max_new_tokens=None', 'None', 'int')])
def test_wrong_type(settings, tmp_path, flag, got, wanted):
    """K1: key, value and wanted type are named, for flags and for files."""
    key, _, text = flag[2:].partition('=')
    message = refusal(settings, flag)
    assert f'{key} = {got}' in message and f'must be {wanted}' in message and 'command line' in message
    if text not in ('true', 'fast', 'many', 'yes', '', '[1'):
        file = write(tmp_path / 'file.py', f'{key} = {text}\n')
        message = refusal(settings, file)
        assert f'{key} = {got}' in message and f'must be {wanted}' in message and str(file) in message


def test_string_wants_string_in_a_file(settings, tmp_path):
    message = refusal(settings, write(tmp_path / 'file.py', 'out_dir = 2024\n'))
    assert 'out_dir = 2024' in message and 'must be str' in message


def test_numbers(settings, tmp_path):
    """K1: an int is fine for a float, 1e3 for an int; the type is the default's afterwards."""
    config = settings('--learning_rate=1', '--max_new_tokens=1e3')
    assert config['learning_rate'] == 1.0 and type(config['learning_rate']) is float
    assert config['max_new_tokens'] == 1000 and type(config['max_new_tokens']) is int
    config = settings(write(tmp_path / 'file.py', 'learning_rate = 1\nmax_new_tokens = 1e3\n'))
    assert type(config['learning_rate']) is float and type(config['max_new_tokens']) is int
    assert settings('--max_new_tokens=-3')['max_new_tokens'] == -3


def test_booleans(settings):
    """K1: true and false in any case, a bare flag is true; other settings need a value."""
    assert settings('--wandb=true')['wandb'] is True and settings('--wandb=True')['wandb'] is True
    assert settings('--wandb')['wandb'] is True
    assert settings('--verbose=false')['verbose'] is False and settings('--verbose=FALSE')['verbose'] is False
    assert '--max_new_tokens' in refusal(settings, '--max_new_tokens')
    assert '--out_dir' in refusal(settings, '--out_dir')


def test_strings_stay_strings(settings):
    """K1: only the first '=' splits, and nothing that looks like a number, truth or quote is changed."""
    for text in ('2024', '1e3', 'true', 'None', 'a=b', '', "'quoted'", 'two words'):
        assert settings(f'--out_dir={text}')['out_dir'] == text


def test_none_can_be_overridden(settings, tmp_path):
    """K1: a default of None takes any type."""
    assert settings('--resume=ck.pt')['resume'] == 'ck.pt'
    assert settings('--resume=3')['resume'] == 3
    assert settings(write(tmp_path / 'file.py', "resume = 'ck.pt'\n"))['resume'] == 'ck.pt'


def test_list(settings):
    assert settings("--examples=[['1 + 1?', '2']]")['examples'] == [['1 + 1?', '2']]


def test_missing_file(settings):
    message = refusal(settings, 'config/nosuch.py')
    assert "'config/nosuch.py' does not exist" in message
    assert '--key=value' in refusal(settings, 'learning_rate=1')


def test_only_rank_0_speaks(settings, monkeypatch):
    monkeypatch.setenv('RANK', '1')
    with pytest.raises(SystemExit) as error:
        settings('--learning_rte=1')
    assert error.value.code == 1


def test_help(settings, capsys):
    with pytest.raises(SystemExit) as error:
        settings('--learning_rate=1', '--help')
    assert error.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert any('--learning_rate=0.0001' in line and 'per update' in line for line in lines)
    assert any('--resume=None' in line and 'a fresh start' in line for line in lines)
    assert not any('hidden' in line for line in lines)


def test_checks_hold_under_optimization(script):
    """K1: python -O drops assert statements; none of the checks may be one."""
    code = f'import sys, configurator; print(configurator.configure({str(script)!r}))'
    for flag, words in (('--learning_rate=fast', 'must be float'), ('--learning_rte=1', 'did you mean'),
                        ('--max_new_tokens', 'needs a value'), ('nosuch.py', 'does not exist')):
        done = subprocess.run([sys.executable, '-O', '-c', code, flag], capture_output=True, text=True,
                              cwd=ROOT)
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.startswith('error: ') and words in done.stderr and done.stderr.count('\n') == 1


# -------------------------------------------------------------------------------------- the repository's own


def test_help_of_train():
    """Every setting with default and comment, although torch and transformers are imported first."""
    done = subprocess.run([sys.executable, str(ROOT / 'train.py'), '--help'], capture_output=True, text=True,
                          timeout=120, cwd=ROOT,
                          env=os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    settings = read_settings(ROOT / 'train.py')
    assert len(settings) > 40 and 'config' not in settings
    for key, (default, comment) in settings.items():
        assert comment, f'{key} has no comment in train.py'
        assert any(line.split('=')[0].strip() == f'--{key}' and f'={default!r} ' in line and comment in line
                   for line in lines), key


def test_eval_accepts_the_settings_of_train():
    scripts = ROOT / 'eval.py', ROOT / 'train.py'
    config = configure(*scripts, argv=[])
    assert set(config) == set(read_settings(scripts[0])) | set(read_settings(scripts[1]))
    assert {'split', 'samples', 'output'} <= set(read_settings(scripts[0]))
    file = str(ROOT / 'config' / 'geo3k.py')
    config = configure(*scripts, argv=[file, '--samples=4', '--eval_temperature=0'])
    assert config['dataset'] == 'geo3k' and config['samples'] == 4 and config['eval_temperature'] == 0.0


@pytest.mark.parametrize('file', sorted((ROOT / 'config').glob('*.py')), ids=lambda file: file.stem)
def test_config_files(file, monkeypatch, tmp_path):
    """Every file sets only what train.py and eval.py have, from any folder, and opens with its use."""
    monkeypatch.chdir(tmp_path)
    before, after = configure(ROOT / 'train.py', argv=[]), configure(ROOT / 'train.py', argv=[str(file)])
    assert set(after) == set(before) and after != before
    both = configure(ROOT / 'eval.py', ROOT / 'train.py', argv=[str(file)])
    assert {key: both[key] for key in after} == after
    assert file.read_text().startswith('# ')
