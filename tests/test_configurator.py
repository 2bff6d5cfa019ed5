"""configurator.py: what composes, what is refused, and with which words (pitfall K1)."""
import os
import re
import runpy
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
max_new_tokens = 16    # longest response, at least 1
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
    assert settings('--learning_rate=-3')['learning_rate'] == -3.0


def test_booleans(settings):
    """K1: true and false in any case, a bare flag is true; other settings need a value."""
    assert settings('--wandb=true')['wandb'] is True and settings('--wandb=True')['wandb'] is True
    assert settings('--wandb')['wandb'] is True
    assert settings('--verbose=false')['verbose'] is False and settings('--verbose=FALSE')['verbose'] is False
    assert 'max_new_tokens = True (the command line) must be int' in refusal(settings, '--max_new_tokens')
    assert 'out_dir = True (the command line) must be str' in refusal(settings, '--out_dir')


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


# ------------------------------------------------------------------------------------- what comments promise

BOUNDED = '''
kind = 'soft-max'   # 'soft-max' | 'none' | 'l2': how; 'none' is no choice of another setting
note = ''           # 'a' or 'b' | 'c': a choice is written with bars only
choice = 'b'        # one of 'a' | 'b': not at the start, so anything goes
rows = 4            # of one pass, at least 2: a pass of one says nothing
rate = 0.5          # at least 0.001, at most anything
shift = 0.0         # at least -1.5; at least this is read
area = 0            # at least this area; 0: off
prose = 1           # as many as at least those of before
config = configure(__file__)
'''


@pytest.fixture
def bounded(tmp_path):
    script = write(tmp_path / 'bounded.py', BOUNDED)
    return lambda *argv, base=None: configure(script, argv=[str(word) for word in argv], base=base)


def test_good_values_pass(bounded, tmp_path):
    """The bound itself is fine; prose with bars or 'at least' in it binds nothing."""
    config = bounded('--kind=l2', '--rows=2', '--rate=0.001', '--shift=-1.5', '--note=z', '--choice=z',
                     '--area=-1', '--prose=-9')
    assert config == {'kind': 'l2', 'rows': 2, 'rate': 0.001, 'shift': -1.5, 'note': 'z', 'choice': 'z',
                      'area': -1, 'prose': -9}
    assert bounded(write(tmp_path / 'file.py', "kind = 'none'\nrate = 1\n"))['rate'] == 1.0
    assert bounded()['kind'] == 'soft-max', 'defaults are good'


@pytest.mark.parametrize('key, value, cure', [
    ('kind', "'mdap'", "one of 'soft-max' | 'none' | 'l2'"), ('kind', "''", 'one of'),
    ('kind', "'soft-max | none'", 'one of'), ('rows', '1', 'at least 2'), ('rows', '-5', 'at least 2'),
    ('rate', '0.0009', 'at least 0.001'), ('rate', '0.0', 'at least 0.001'), ('rate', '-1.0', '0.001'),
    ('shift', '-1.6', 'at least -1.5')])
def test_bad_values_name_the_cure(bounded, tmp_path, key, value, cure):
    """From a flag and from a file; an earlier good value does not help, a later one does."""
    flag, file = f'--{key}={value.strip(chr(39))}', write(tmp_path / 'file.py', f'{key} = {value}\n')
    for argv in ([flag], [file], [f'--{key}={bounded()[key]}', flag]):
        message = refusal(bounded, *argv)
        assert f'{key} = ' in message and value.strip("'").rstrip('0.') in message and cure in message
    assert bounded(file, f'--{key}={bounded()[key]}') == bounded()


def test_nan_is_below_every_bound(bounded, tmp_path):
    assert 'at least 0.001' in refusal(bounded, write(tmp_path / 'file.py', "rate = float('nan')\n"))
    assert bounded(write(tmp_path / 'file.py', "rate = float('inf')\n"))['rate'] == float('inf')


def test_base_is_checked_as_well(bounded):
    """A checkpoint of old times may hold what is no choice any more: said, and cured by a flag."""
    assert 'kind = ' in refusal(lambda *argv: bounded(*argv, base={'kind': 'gone'}))
    assert 'at least 2' in refusal(lambda *argv: bounded(*argv, base={'rows': 1}))
    assert bounded('--kind=none', base={'kind': 'gone', 'rows': 3})['kind'] == 'none'


def test_comments_are_found_behind_any_default(tmp_path):
    """Letters of several bytes, a # in a string, and a default of several lines."""
    text = "a = 'ä # ö'  # 'ä # ö' | 'ü'\nb = [[1],\n     [2]]  # pairs\nc = 3\n"
    script = tmp_path / 'script.py'
    script.write_text(text, encoding='utf-8')
    assert read_settings(script) == {
        'a': ('ä # ö', "'ä # ö' | 'ü'"), 'b': ([[1], [2]], 'pairs'), 'c': (3, '')}
    assert configure(script, argv=['--a=ü'])['a'] == 'ü'
    assert 'one of' in refusal(lambda *argv: configure(script, argv=list(argv)), '--a=u')


def test_checks_hold_under_optimization(script):
    """K1: python -O drops assert statements; none of the checks may be one."""
    code = f'import sys, configurator; print(configurator.configure({str(script)!r}))'
    for flag, words in (('--learning_rate=fast', 'must be float'), ('--learning_rte=1', 'did you mean'),
                        ('--max_new_tokens=0', 'at least 1'),
                        ('--max_new_tokens', 'must be int'), ('nosuch.py', 'does not exist')):
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


@pytest.mark.parametrize('flag, words', [
    ('--pruning=mdapp', "one of 'mdap' | 'cppo' | 'random'"), ('--ratio=tokens', "'token' | 'sequence'"),
    ('--average=mean', "'token' | 'seq'"), ('--kl=k4', "'k3' | 'k1'"), ('--old_logps=none', "'sampler' | "),
    ('--device=tpu', "'auto' | 'cpu' | 'cuda'"), ('--dtype=float16', "'auto' | 'float32' | 'bfloat16'"),
    ('--temperature=0', 'at least 0.001'), ('--rollouts_per_question=1', 'at least 2'),
    ('--questions_per_step=0', 'at least 1'), ('--updates_per_step=0', 'at least 1'),
    ('--tau=-0.1', 'at least 0'), ('--max_response_tokens=0', 'at least 1'), ('--beta=-1', 'at least 0'),
    ('--ngram=0', 'at least 1')])
def test_what_train_and_eval_refuse(flag, words):
    """Both take the settings of train.py, and both refuse what its comments rule out."""
    for scripts in ([ROOT / 'train.py'], [ROOT / 'eval.py', ROOT / 'train.py']):
        with pytest.raises(SystemExit, match=re.escape(words)):
            configure(*scripts, argv=[flag])


def test_what_comments_of_train_do_not_forbid():
    config = configure(ROOT / 'eval.py', ROOT / 'train.py', argv=[
        '--split=ood', '--init_from=somewhere', '--reward=grounding', '--attn_implementation=eager',
        '--tau=1.5', '--min_pixels=100', '--eval_temperature=0', '--eval_dataset=x'])
    assert config['split'] == 'ood' and config['tau'] == 1.5


@pytest.mark.parametrize('file', sorted((ROOT / 'config').glob('*.py')), ids=lambda file: file.stem)
def test_config_files(file, monkeypatch, tmp_path):
    """Every file sets only what train.py and eval.py have, from any folder, and opens with its use."""
    monkeypatch.chdir(tmp_path)
    before, after = configure(ROOT / 'train.py', argv=[]), configure(ROOT / 'train.py', argv=[str(file)])
    assert set(after) == set(before)
    both = configure(ROOT / 'eval.py', ROOT / 'train.py', argv=[str(file)])
    assert {key: both[key] for key in after} == after
    assert set(before) & set(runpy.run_path(str(file))), 'a file that sets nothing'
    assert '# ' in file.read_text().splitlines()[0]
