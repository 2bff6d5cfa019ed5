"""Rewards: does a response follow the format, and is the answer in its last \\boxed{} right?

In: response texts, and the question (a dict with a string 'answer') of each. Out: one float per trajectory,
format (0 / 0.5) + accuracy (0 / 1), Eq. 4, and the named parts it is made of.
Cheapest test first: equal strings, equal numbers, then math-verify's parser. A wrong 1 does more harm than a
wrong 0: what can not be read to its last character, or might keep SymPy busy, is not equal (and 'unparsed').
"""
import math
import random
import re
import threading
from fractions import Fraction
from functools import lru_cache

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy  # the parser inside math-verify
from math_verify.errors import TimeoutException
from math_verify.utils import timeout

MAX_CHARS, MAX_POWER, SECONDS = 200, 5000, 3  # of an answer, of the product of its exponents, for SymPy
# Spellings that mean the same, applied in this order. '~' marks what stood in \text{} or behind a hard space.
SPELLINGS = [(re.compile(pattern), new) for pattern, new in (
    (r'^\s*\\(?:boxed|fbox)\s*\{(.*)\}\s*$', r'\1'), ('[−–]', '-'), (r'\*\*', '^'), ('×', r'\\times '),
    (r'√|(?<![a-zA-Z\\])sqrt(?![a-zA-Z])', r'\\sqrt '), (r'π|(?<![a-zA-Z\\])pi(?![a-zA-Z])', r'\\pi '),
    ('[·⋅]', r'\\cdot '), (r'\{,\}|,\\!', ','), (r'(?<!\\)\\[!,;: ]', ' '), (r'_\{(\w)\}', r'_\1'),
    (r'\^\s*(\\circ|\{\s*\\circ\s*\})|[°º度]|\\?[$%]|\\(left|right|displaystyle)(?![a-zA-Z])', ''),
    (r'\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{\s*([^{}]*)\}', r'~\1'), (r'^\s*~?\(([a-zA-Z])\)\s*$', r'\1'),
    (r'\\[dtc]frac', r'\\frac'), (r'\\frac\s*(\d)\s*(\d)', r'\\frac{\1}{\2}'),
    (r'\\sqrt\s*(\d+|[a-zA-Z])', r'\\sqrt{\1}'), (r'\\sqrt\s*\(([^()]*)\)', r'\\sqrt{\1}'),
    (r'^\s*(-?)\\frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}\s*$', r'\1\2/\3'),
    (r'^\s*(-?)(\d+)(?:\\frac\{(\d+)\}\{(\d+)\}| (\d+)/(\d+))\s*$', r'\1(\2+\3\5/\4\6)'))]  # mixed numbers
# A unit may be missing on one side; two units must agree. One letter is a unit only in \text{}.
UNIT = re.compile(r'(?<=[\d})i~])[~\s]*(?:(mm|cm|km|inch|inches|ft|feet|mile|unit|degree|dollar|cent|hour'
                  r'|minute|second|平方厘米|厘米|米)s?|(?<=~)([mgsh]))(\^\{?[23]\}?)?$')
UNIT_NAMES = {'平方厘米': 'cm^2', '厘米': 'cm', '米': 'm', 'inches': 'inch', 'feet': 'ft'}
NUMBER = re.compile(r'[+-]?(?=\.?\d)(\d{1,3}(,\d{3})+|\d*)(/0*[1-9]\d*|(\.\d*)?([eE][+-]?\d{1,2})?)')
NAME = re.compile(r'(?:m?\\angle ?\w+|[a-zA-Z]{1,2}(?:_\w)?|[a-z]\([a-z]\))=(?=[^=]+$)')  # the 'x=' of 'x=5'
EXPONENT = r'\^(\{(?:[^{}^!]|\{[^{}^!]*\})*\}|\([^()^!]*\)|-?\d+|[a-zA-Z]|\\pi)'
# What the parser misreads (to it '2(3)' is the mixed number 2 + 3), and what can take SymPy for ever.
UNREADABLE = re.compile(r'''
    (?<![\\a-zA-Z])(?:[a-zA-Z]{3}|[A-Z]{2}|or\b) | \d_ | =.*= | \.\d*\.    # words, number bases, chains
    | \d\ [\d.] | [\d)][{\[] | [)\]}]\d | (?<![a-z}\]])\{[^{}]*\}\{ | \d\\frac\{-?\d    # numbers side by side
    | ! | \^(?!EXPONENT(?!\^)) | (?:[(\[{][^(\[{]*){25}    # factorials, towers of powers, deep nesting
    | \\(?!(?:frac|sqrt|pi|cdot|times|div|pm|infty|cup|cap|leq?|geq?|lt|gt|neq?|sin|cos|tan|cot|sec|csc|log|ln
        |alpha|beta|gamma|delta|theta|lambda|mu|phi|omega)(?![a-zA-Z]))[a-zA-Z]    # \sum, \int, \binom, ...
    '''.replace('EXPONENT', EXPONENT[2:]), re.VERBOSE)


def extract_boxed(text):
    """Content of the last \\boxed{...}, braces balanced (not \\{); None if absent or never closed."""
    _, box, text = text.rpartition('\\boxed{')
    depth = 1 if box else math.inf
    for token in re.finditer(r'\\.|[{}]', text, re.DOTALL):
        depth += {'{': 1, '}': -1}.get(token[0], 0)
        if depth == 0:
            return text[:token.start()].strip()
    return None


def format_reward(text):
    """0.5 for <thinking>...</thinking> ... \\boxed{...} ..., else 0. Forward searches only: linear time."""
    text = ''.join(piece.strip() for piece in re.split('([<>/])', text))
    end = text.find('</thinking>')
    box = text.find('\\boxed{', end)
    return 0.5 if text.startswith('<thinking>') and -1 < end < box < text.find('}', box) else 0.0


def tidy(text):
    """One spelling for all notations of an answer; and its unit, or ''."""
    for pattern, new in SPELLINGS:
        text = pattern.sub(new, text)
    text = text.strip('~ \n').rstrip('.')
    unit = UNIT.search(text)
    text = ' '.join(text[:unit.start() if unit else None].replace('~', ' ').split())
    text = re.sub('(?<![a-zA-Z0-9]) | (?![a-zA-Z0-9])', '', text)
    text = re.sub(r'(?<=[\d)}])\(|(?<=\\pi)\(', r'\\cdot(', text)
    if not unit:
        return text, ''
    return text, UNIT_NAMES.get(unit[1], unit[1] or unit[2]) + re.sub('[{}]', '', unit[3] or '')


def read(text):
    """LaTeX -> SymPy object; ValueError if that would be unsafe or incomplete."""
    flat = re.sub(r'\\\\|\\(begin|end)\{[pb]matrix\}', ';', text)
    powers = re.findall(r'\d+', ' '.join(re.findall(EXPONENT, flat)))
    if UNREADABLE.search(flat) or math.prod(max(1, int(power)) for power in powers) > MAX_POWER:
        raise ValueError(f'not safely readable: {text}')
    case = ConversionConfig(lowercase_symbols=False)  # else R - r is 0
    return sympy.sympify(latex2sympy(text, is_real=True, normalization_config=None, conversion_config=case))


def same(truth, answer):
    """Are two SymPy objects equal? Numbers exactly (decimals to 1e-12), formulas at 3 points, sets by member.

    Not math-verify's verify(): to it any two tiny numbers are equal, and any two equations without solution.
    """
    if truth == answer or truth.has(sympy.zoo, sympy.nan):
        return truth == answer and not truth.has(sympy.zoo, sympy.nan)
    if not all(isinstance(x, sympy.Expr) and not x.is_Matrix for x in (truth, answer)):  # by parts, in order
        alike = type(truth) is type(answer) and 0 < len(truth.args) == len(answer.args)
        return alike and all(same(a, b) for a, b in zip(truth.args, answer.args))
    truth, answer = truth.doit(), answer.doit()
    if truth.is_Rational and answer.is_Rational:
        return truth == answer
    tolerance = 1e-12 if truth.has(sympy.Float) or answer.has(sympy.Float) else 1e-30
    for k in range(3):
        point = {x: sympy.I if x.name == 'i' else random.Random(f'{x} {k}').uniform(1, 9)
                 for x in truth.free_symbols | answer.free_symbols}
        a, b = truth.evalf(50, subs=point), answer.evalf(50, subs=point)
        if a != b and not abs(a - b) < tolerance * abs(a):
            return False
    return True


@lru_cache(maxsize=100_000)
def judge(answer, truth):
    """Two answers -> equal or not, or None where only SymPy could tell and it can not read them."""
    if max(len(answer), len(truth)) > MAX_CHARS:
        return None
    (answer, unit), (truth, true_unit) = tidy(answer), tidy(truth)
    if not answer or not truth or (unit and true_unit and unit != true_unit):
        return False
    if ('=' in answer) != ('=' in truth):
        answer, truth = NAME.sub('', answer), NAME.sub('', truth)
    if answer == truth or answer.replace(' ', '').isalpha() or truth.replace(' ', '').isalpha():  # words
        return answer.lower() == truth.lower()
    if NUMBER.fullmatch(answer) and NUMBER.fullmatch(truth):
        return Fraction(answer.replace(',', '')) == Fraction(truth.replace(',', ''))
    if answer.count(',') != truth.count(','):  # read as sets, '5,5' and '5' would be equal
        return False
    # signals work in the main thread only; elsewhere the limits above are all there is
    limit = timeout(SECONDS if threading.current_thread() is threading.main_thread() else None)
    try:
        return limit(lambda: bool(same(read(truth), read(answer))))()
    except (Exception, TimeoutException):  # the one failure that becomes reward 0; counted
        return None


def equivalent(answer, truth):
    """Do the content of a box and the true answer have the same value? Empty or unreadable: False."""
    return bool(judge(answer.strip()[:MAX_CHARS + 1], truth.strip()))  # cut, so that the cache stays small


def math_parts(response, question):
    """{'format': 0 or 0.5, 'accuracy': 0 or 1, 'unparsed': 1 where the box could not be read}."""
    verdict = judge((extract_boxed(response) or '')[:MAX_CHARS + 1], question['answer'].strip())
    correct, unparsed = float(verdict is True), float(verdict is None)
    return {'format': format_reward(response), 'accuracy': correct, 'unparsed': unparsed}


def math_reward(response, answer):
    """{'format': 0 or 0.5, 'accuracy': 0 or 1}."""
    parts = math_parts(response, {'answer': answer})
    return {key: parts[key] for key in ('format', 'accuracy')}


KINDS = {'math': math_parts}  # add your own here: (response, question) -> named parts


def score(texts, owner, questions, kind='math'):
    """Rewards [N] and parts {name: [N]} of N responses; owner[i] is the index of response i's question."""
    if kind not in KINDS:
        raise ValueError(f'reward kind = {kind!r}: allowed are {sorted(KINDS)}; add yours to reward.KINDS')
    if len(texts) != len(owner):
        raise ValueError(f'{len(texts)} responses but {len(owner)} owners: pass one question index for each')
    rows = [KINDS[kind](text, questions[i]) for text, i in zip(texts, owner)]
    parts = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return [row['format'] + row['accuracy'] for row in rows], parts
