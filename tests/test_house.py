"""The promises of the README about the code itself."""
import ast
import subprocess
import sys

from helpers import ROOT

SCRIPTS = [path for path in ROOT.rglob('*.py')
           if not {'tests', '.venv', 'build'} & set(path.relative_to(ROOT).parts)]


def imports(name):
    tree = ast.parse((ROOT / f'{name}.py').read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_under_two_thousand_lines():
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SCRIPTS}
    assert sum(lines.values()) < 2000, lines


def test_one_way_through():
    """mdap, ars, losses and reward know nothing of the rest; nothing imports train."""
    ours = {'train', 'eval', 'model', 'rollout', 'reward', 'losses', 'mdap', 'ars', 'configurator'}
    for name in ('mdap', 'ars', 'losses', 'reward', 'configurator'):
        assert not imports(name) & ours, name
    assert imports('rollout') & ours == {'model'} and not imports('model') & ours
    assert imports('eval') & ours == {'configurator', 'model', 'rollout', 'reward'}
    assert not any('train' in imports(name) for name in ours)


def test_optional_packages_are_imported_where_they_are_used():
    """A bare install of the requirements runs everything but plots, GGUF files and generated sums."""
    code = ('import sys; sys.path.insert(0, "."); '
            'import model, rollout, reward, losses, mdap, ars, eval, configurator; '
            'assert not {"seaborn", "gguf", "reasoning_gym", "torchvision"} & set(sys.modules)')
    subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True, timeout=120)


def test_every_file_opens_with_an_explanation():
    for path in SCRIPTS:
        if path.parent.name != 'config':
            assert 3 <= len((ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()) <= 20, path
        else:
            assert '# ' in path.read_text().splitlines()[0], path
