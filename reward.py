"""Rewards: does a response follow the format, and is the answer in its last \\boxed{} right?

In: responses and their questions, dicts with an 'answer' or a 'box'. Out: named parts, one of them 'reward'.
A wrong 1 does more harm than a wrong 0: what is not read to its end or may keep SymPy busy is not equal."""
import json
import math
import random
import re
import resource
import runpy
import signal
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from subprocess import Popen

import sympy  # below: the parser inside math-verify; its verify() finds any two tiny numbers equal
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

SECONDS, MEMORY = 3, 2 ** 31  # of the processor for one comparison, bytes for a process that makes them
THREADS, LOCAL = ThreadPoolExecutor(4), threading.local()  # so many at once; each with a process of its own
RULES = tomllib.loads((Path(__file__).parent / 'data/answers.toml').read_text('utf-8'))
NUMBER, NAME, STYLE, LETTER, EXPONENT, UNREADABLE = (
    re.compile(RULES[key]) for key in ('number', 'name', 'style', 'letter', 'exponent', 'unreadable'))

def extract_boxed(text):
    """Content of the last \\boxed{...}, braces balanced (not \\{); None if absent or never closed."""
    _, box, text = text.rpartition('\\boxed{')
    depth = 1 if box else math.inf
    for token in re.finditer(r'\\.|[{}]', text, re.DOTALL):
        depth += {'{': 1, '}': -1}.get(token[0], 0)
        if depth == 0:
            return text[:token.start()].strip()

def format_reward(text):
    """0.5 for <thinking>...</thinking> ... \\boxed{...} ..., else 0. Forward searches only: linear time."""
    text = ''.join(piece.strip() for piece in re.split('([<>/])', text))
    end = text.find('</thinking>')
    box = text.find('\\boxed{', end)
    return 0.5 if text.startswith('<thinking>') and -1 < end < box < text.find('}', box) else 0.0

def tidy(text):
    """An answer as people write it -> its value in one spelling and its unit (put behind a line break)."""
    for pattern, new in RULES['spellings']:
        text = re.sub(pattern, new, text)
    return text.partition('\n')[::2]

def read(text):
    """LaTeX -> SymPy object; ValueError if that would be unsafe or incomplete."""
    flat = re.sub(r'\\\\|\\(begin|end)\{[pb]matrix\}', ';', text)
    size = math.prod(max(1, int(power)) for power in re.findall(r'\d+', ' '.join(EXPONENT.findall(flat))))
    if size > RULES['max_power'] or '^' in EXPONENT.sub('', flat) or UNREADABLE.search(flat):
        raise ValueError(f'not safely readable: {text}')
    case = ConversionConfig(lowercase_symbols=False)  # else R - r is 0
    found = sympy.sympify(latex2sympy(text, is_real=True, normalization_config=None, conversion_config=case))
    if isinstance(found, sympy.FiniteSet) and len(found) <= re.sub(r'\([^()]*\)', '', text).count(','):
        raise ValueError(f'a member twice: {text}')  # 1,1,2 would equal 1,2,2
    return found

def same(truth, answer, decimals=None):
    """Equality of SymPy objects: exact (decimals: to 1e-12), of formulas at 3 points, of sets by member.
    decimals: numbers may differ beyond so many, as in MathVista and MathVision; 0: beyond the whole part."""
    if not all(isinstance(x, sympy.Expr) and not x.is_Matrix for x in (truth, answer)):  # by parts, in order
        alike = type(truth) is type(answer) and len(truth.args) == len(answer.args)
        parts = (same(*pair, decimals) for pair in zip(truth.args, answer.args))
        return alike and (all(parts) if truth.args else truth == answer)
    truth, answer = truth.doit(), answer.doit()
    if decimals is not None and all(x.is_number and x.is_real for x in (truth, answer)):
        return len({round(float(x), decimals) if decimals else int(x) for x in (truth, answer)}) == 1
    if truth.is_Rational and answer.is_Rational or truth.has(sympy.zoo, sympy.nan):
        return truth.is_Rational and truth == answer  # what is undefined equals nothing
    tolerance = 1e-12 if truth.has(sympy.Float) or answer.has(sympy.Float) else 1e-30
    points = ({x: sympy.I if x.name == 'i' else random.Random(f'{x} {k}').uniform(1, 9)
               for x in truth.free_symbols | answer.free_symbols} for k in range(3))
    pairs = ((truth.evalf(50, subs=point), answer.evalf(50, subs=point)) for point in points)
    return all(a == b or abs(a - b) < tolerance * abs(a) for a, b in pairs)

def serve():
    """Lines of truth, answer, decimals in, same() of them out. SIGPROF, unhandled, ends what takes long."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # for the whole job: it ends with its input
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    print('ready', flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        truth, answer, decimals = json.loads(line)
        try:
            verdict = bool(same(read(truth), read(answer), decimals))
        except Exception:  # the one failure that becomes reward 0; counted
            verdict = 'unreadable'
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(verdict), flush=True)

def compare(*question):
    """same() of truth, answer, decimals, by this thread's own process; 'timeout' if that did not survive."""
    process, LOCAL.process = getattr(LOCAL, 'process', None), None
    if process is None or process.poll() is not None:  # it ends with us, as its input does; Ctrl-C is ours
        process = Popen([sys.executable, __file__], stdin=-1, stdout=-1, text=True, start_new_session=True)
        if process.stdout.readline() != 'ready\n':
            raise RuntimeError(f'a process that compares answers does not start: {process.args}; see above')
    print(json.dumps(question), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        process.wait()
    LOCAL.process = process  # for the next question, as it has answered this one or ended
    return json.loads(line) if line else 'timeout'

@lru_cache(maxsize=4096)
def judge(answer, truth, decimals=None):
    """Are two answers equal? True or False, or 'unreadable' or 'timeout' where only SymPy could tell."""
    if max(len(answer), len(truth)) > RULES['max_chars']:
        return 'unreadable'
    (answer, unit), (truth, true_unit) = tidy(answer), tidy(truth)
    (kind, size), (true_kind, true_size) = (RULES['units'].get(u, (u, 1)) for u in (unit, true_unit))
    if not answer or not truth or unit and true_unit and kind != true_kind:  # one may lack the unit
        return False
    if unit and size != true_size and true_unit:
        answer, truth = f'{size}\\cdot({answer})', f'{true_size}\\cdot({truth})'
    if ('=' in answer) != ('=' in truth):
        answer, truth = NAME.sub('', answer), NAME.sub('', truth)
    if answer == truth or answer.replace(' ', '').isalpha() or truth.replace(' ', '').isalpha():  # words
        return answer.lower() == truth.lower()
    if NUMBER.fullmatch(answer) and NUMBER.fullmatch(truth):
        return same(*(sympy.Rational(x.replace(',', '')) for x in (truth, answer)), decimals)
    return answer.count(',') == truth.count(',') and compare(truth, answer, decimals)  # sets: {5, 5} is {5}

def choose(box, options):
    """Which of the options {letter: text} is named: by its letter, without another one's text; by its very
    text; by a value that no other has? None: `box` comes back."""
    named = LETTER.fullmatch(STYLE.sub('', box).strip())
    if named and not any(judge(named[2], text) is True for key, text in options.items() if key != named[1]):
        return named[1]
    found = [key for key, text in options.items() if text == box] or [
        key for key, text in options.items() if judge(box, text) is True]
    return found[0] if len(found) == 1 else box

def grade(box, question):
    """Is the content of a box (None: no box) right? True, False, or why not: 'no box' or as of judge().
    Where there are choices, or the answer is a letter, the box may name an option; so may the answer."""
    truth, options = question['answer'], dict(zip('ABCDEFGH', question.get('choices') or ()))
    if box is None:
        return 'no box'
    if options or re.fullmatch('[A-H]', truth):
        box, truth = choose(box, options), truth if truth in options else choose(truth, options)
    return judge(box, truth, question.get('decimals'))

def math_parts(response, question):
    """Eq. 4: format + accuracy, 0 to 1.5. 'unparsed': no box or an unreadable one; 'timeout': among these."""
    style, verdict = format_reward(response), grade(extract_boxed(response), question)
    return {'reward': style + (verdict is True), 'format': style, 'accuracy': float(verdict is True),
            'unparsed': float(isinstance(verdict, str)), 'timeout': float(verdict == 'timeout')}

def math_reward(response, answer):
    """{'format': 0 or 0.5, 'accuracy': 0 or 1}."""
    return {key: math_parts(response, {'answer': answer})[key] for key in ('format', 'accuracy')}

def read_box(text):
    """'[.1, .2, .7, 1]' or thousandths (any is above 1) -> [left, top, right, bottom] as ratios, or None."""
    box = [float(number) for number in re.findall(r'(?<![\w.])-?\d*\.?\d+(?:[eE][+-]?\d+)?', str(text))]
    if len(box) == 4 and box[0] < box[2] and box[1] < box[3]:
        return [number / 1000 for number in box] if max(box) > 1 else box

def grounding_reward(response, box):
    """{'format': 0 or 0.5, 'iou': intersection over union with `box`, 'center': is that inside? 0 or 1}."""
    truth, answer = list(read_box(box)), read_box(extract_boxed(response)) or [-1.0] * 4  # out of sight
    overlap = math.prod(max(0.0, min(truth[k + 2], answer[k + 2]) - max(truth[k], answer[k])) for k in (0, 1))
    union = sum((x[2] - x[0]) * (x[3] - x[1]) for x in (truth, answer)) - overlap
    center = all(truth[k] <= (answer[k] + answer[k + 2]) / 2 <= truth[k + 2] for k in (0, 1))
    return {'format': format_reward(response), 'iou': overlap / union, 'center': float(center)}

def grounding_parts(response, question):
    """Continuous: format + IoU + center-in, 0 to 2.5; 'accuracy', for filters and tests, is center-in."""
    parts = grounding_reward(response, question['box'])
    return {'reward': sum(parts.values()), **parts, 'accuracy': parts['center']}

KINDS = {'math': math_parts, 'grounding': grounding_parts}

@lru_cache
def find(kind):
    """A name of KINDS, or 'path/to/my_reward.py:my_function' -> function of response and question."""
    file, _, name = kind.rpartition(':')
    try:
        return KINDS.get(kind) or runpy.run_path(file)[name]
    except (ImportError, OSError, KeyError) as error:
        raise ValueError(f'reward = {kind!r}: no {error}; use {sorted(KINDS)} or FILE.py:FUNCTION') from error

def score(texts, owner, questions, kind='math'):
    """Named parts, with 'reward', of each of N responses; owner[i]: index of the question of response i."""
    pairs = [(text, questions[i]) for text, i in zip(texts, owner, strict=True)]
    rows = (THREADS.map if kind in KINDS else map)(lambda pair: find(kind)(*pair), pairs)  # yours: in turn
    rows = [row if isinstance(row, dict) else {'reward': float(row)} for row in rows]
    return [{'accuracy': float(row['reward'] > 0), 'format': 0.0} | {
        key: float(value) for key, value in row.items()} for row in rows]

if __name__ == '__main__':
    serve()
