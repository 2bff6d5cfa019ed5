"""Rewards: does a response follow the format, and is the answer in its last \\boxed{} right?

In:  response texts, and for each the index of its question (a list of dicts with a string 'answer').
Out: one float per trajectory, format (0 / 0.5) + accuracy (0 / 1), Eq. 4, and the named parts it is made of.
Run: python -c "import reward; print(reward.math_reward(r'<thinking></thinking> \\boxed{0.5}', '1/2'))"
Answers are brought to one notation and, if still different, evaluated to 1000 digits. Not by math-verify: it
pays for texts read in part, and SymPy may expand 9^9^9^9 for ever. What can not be read is 0, and 'unparsed'.
"""
import ast
import random
import re
from functools import lru_cache
from string import ascii_letters

from mpmath import MPContext

MAX_CHARS = 200  # of an answer; a longer one gets 0
# Notations that mean the same; all rows again and again until nothing changes, as braces open from the inside.
# '~' marks what stood in \text{} or behind a hard space.
REWRITES = [(re.compile(pattern), new) for pattern, new in [
    # wrappers and layout; a set in braces is a list without brackets
    (r'^\\(?:boxed|fbox)\s*\{(.*)\}$', r'\1'), (r'^\\\{(.*,.*)\\\}$', r'\1'), (r'^~?\(([a-zA-Z])\)$', r'\1'),
    (r'\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{\s*([^{}]*)\}', r'~\1'), (r'\{,\}|,\\!', ','), (r'\.$', ''),
    (r'\\(?:left|right|displaystyle)(?![a-zA-Z])', ''), (r'(?<!\\)\\[!,;: ]', ' '), (r'_\{(\w)\}', r'_\1'),
    # signs; degrees, percent and dollars go, Chinese units become symbols
    ('[−–]', '-'), (r'[×·⋅]|\\(?:times|cdot)(?![a-z])', '*'), (r'÷|\\div(?![a-z])', '/'), (r'\*\*', '^'),
    (r'(\\|(?<![a-zA-Z]))sqrt(?![a-zA-Z])', '√'), (r'(\\|(?<![a-zA-Z]))pi(?![a-zA-Z])', 'π'), (r'\\infty', '∞'),
    (r'\\pm(?![a-z])', '±'), (r'\\([lg]e)q', r'\\\1 '), ('平方厘米', '~cm^2'), ('厘米', '~cm'), ('米', '~m'),
    (r'\^\s*(?:\\circ|\{\s*\\circ\s*\})|[°º度]|\\?[$%]', ''),
    # spaces, except between words or numbers ("3 4" is not 34); commas of thousands
    (r'\s+', ' '), (r'(?<!\w) | (?!\w)|(?<=[\dπ]) (?=[a-zA-Zπ](?!\w))|~(?![a-zA-Z])', ''),
    (r'((?:^|=)[+-]?\d{1,3}(?:\d{3})*),(\d{3})(?=(?:,\d{3})*(?:\.\d*)?(?:[ ~]|$))', r'\1\2'),
    # mixed numbers; inside a formula 2\frac{1}{2} may also be a product: it keeps its braces, so is not read
    (r'((?:^|=)-?)(\d+)(?:\\frac\{(\d+)\}\{(\d+)\}| (\d+)/(\d+))(?=[ ~]|$)', r'\1(\2+\3\5/\4\6)'),
    # fractions, roots and powers, with parentheses for braces
    (r'\\[dtc]frac', r'\\frac'), (r'\\frac ?(\d) ?(\d)', r'\\frac{\1}{\2}'), (r'√ ?(\d+|[a-zA-Z])', r'√(\1)'),
    (r'(?:(?<!\d)\\frac|\\frac(?=\{[^\d-]))\{([^{}]*)\}\{([^{}]*)\}', r'((\1)/(\2))'),
    (r'√\{([^{}]*)\}', r'√(\1)'), (r'√\[(\d+)\]\{([^{}]*)\}', r'((\2)^(1/\1))'), (r'\^\{([^{}]*)\}', r'^(\1)'),
    (r'(?<![\w.])(\d+\.?\d*)[eE]([+-]?\d\d?)(?![\w.^])', r'\1*10^(\2)')]]
# The name ("x="), value and unit of an answer. A single letter is a unit only in \text{}, else a variable.
PARTS = re.compile(
    r'((?:m?\\angle ?\w+|[a-zA-Z]{1,2}(?:_\w)?|[a-z]\([a-z]\))=(?=[^=]+$))?(.*?)'
    r'(?:(?<=[\d)iπ~])[~ ]*((?:mm|cm|km|ft|feet|inche?|mile|unit|degree|dollar|cent|hour|minute|second'
    r'|(?<=~)[mgsh])(?:s?\^\(?[23]\)?)?)s?)?', re.DOTALL)
# Unknown signs, two operators, two points, a number right after a factor, words.
UNREADABLE = re.compile(r'[^\da-zA-Zπ∞√^.+*/,()-]|\*\*|//|\.\d*\.|[a-zA-Zπ∞)]\.?\d|[a-zA-Z]{3}|[A-Z]{2}|or')
REAL = MPContext()  # of our own: its precision is the same in every thread
REAL.dps = 1000
# A variable is a random number of its own: formulas that agree there are equal.
VALUES = {letter: REAL.mpf(random.Random(letter).uniform(1, 9)) for letter in ascii_letters}
VALUES |= {'i': REAL.j, 'π': REAL.pi, 'infty': REAL.inf, 'sqrt': REAL.sqrt, 'mpf': REAL.mpf, '__builtins__': {}}


def extract_boxed(text):
    """Content of the last \\boxed{...}, None if absent or never closed. Braces nest, except \\{ and \\}."""
    _, box, text = text.rpartition('\\boxed{')
    depth = 1
    for token in re.finditer(r'\\.|[{}]', text if box else '', re.DOTALL):
        depth += {'{': 1, '}': -1}.get(token[0], 0)
        if depth == 0:
            return text[:token.start()].strip()


def format_reward(text):
    """0.5 for <thinking>...</thinking> ... \\boxed{...} ..., else 0. Forward searches only: linear time."""
    text = ''.join(piece.strip() for piece in re.split('([<>/])', text))
    end = text.find('</thinking>')
    box = text.find('\\boxed{', end)
    return 0.5 if text.startswith('<thinking>') and -1 < end < box < text.find('}', box) else 0.0


def _tidy(text):
    """'x = 2\\sqrt3\\text{ cm}' -> '2√(3)', ['x=', 'cm']."""
    text, before = text.strip(), None
    while text != before:
        before = text
        for pattern, new in REWRITES:
            text = pattern.sub(new, text)
    name, text, unit = PARTS.fullmatch(text).groups()
    return text.replace('~', ' ').strip(), [name, unit]


def _read(text):
    """'(1,2)' -> '()', [1, 2]. Without brackets the values are sorted, as they have no order."""
    ends = text[0] + text[-1] if ',' in text and text[0] in '([' else ''
    text = text[1:-1] if ends else text
    if UNREADABLE.search(text):
        raise ValueError(f'not a formula: {text}')
    text = re.sub(r'(?<=[\w.)∞])(?=[a-zA-Zπ(√∞])', '*', text)  # products without a sign
    text = re.sub(r'\d+\.?\d*|\.\d+', r'mpf("\g<0>")', text)  # evaluation is safe: all other names are one letter
    text = text.replace('√', 'sqrt').replace('^', '**').replace('∞', 'infty')
    powers = [node for node in ast.walk(ast.parse(text)) if isinstance(getattr(node, 'op', None), ast.Pow)]
    if any(isinstance(node, ast.Pow) for power in powers for node in ast.walk(power.right)):
        raise ValueError(f'a tower of powers: {text}')
    values = [eval(item, VALUES) for item in text.split(',')]
    if any(1e300 < abs(value) < REAL.inf for value in values):
        raise ValueError(f'may differ in digits that are not computed: {text}')
    return ends, values if ends else sorted(values, key=lambda value: (value.real, value.imag))


@lru_cache(maxsize=10_000)
def _judge(answer, truth):
    """True or False, or None where only the values could tell and they can not be read."""
    if max(len(answer), len(truth)) > MAX_CHARS:
        return None
    (answer, marks), (truth, true_marks) = _tidy(answer), _tidy(truth)
    if not answer or not truth or any(a and b and a != b for a, b in zip(marks, true_marks)):
        return False
    if answer == truth or any(re.fullmatch('[a-zA-Z ]+', text) for text in (answer, truth)):
        return answer.lower() == truth.lower()
    try:
        (ends, values), (true_ends, true_values) = _read(answer), _read(truth)
    except Exception:  # the one failure that becomes reward 0; counted
        return None
    same = [a == b or abs(a - b) < abs(b) * REAL.mpf('1e-900') for a, b in zip(values, true_values)]
    return ends == true_ends and len(values) == len(true_values) and all(same)


def equivalent(answer, truth):
    """Do the content of a box and the true answer have the same value? Empty or unreadable: False."""
    return bool(_judge(answer, truth))


def math_reward(response, answer):
    """{'format': 0 or 0.5, 'accuracy': 0 or 1}."""
    right = equivalent(extract_boxed(response) or '', answer)
    return {'format': format_reward(response), 'accuracy': float(right)}


KINDS = {'math': lambda text, question: math_reward(text, question['answer']) | {
    'unparsed': float(_judge(extract_boxed(text) or '', question['answer']) is None)}}


def score(texts, owner, questions, kind='math'):
    """Rewards [N] and parts {name: [N]} of N responses; owner[i] is the index of response i's question."""
    if kind not in KINDS:
        raise ValueError(f'reward kind = {kind!r}: allowed are {sorted(KINDS)}; add yours to reward.KINDS')
    if len(texts) != len(owner):
        raise ValueError(f'{len(texts)} responses but {len(owner)} owners: pass one question index for each')
    rows = [KINDS[kind](text, questions[i]) for text, i in zip(texts, owner)]
    parts = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return [row['format'] + row['accuracy'] for row in rows], parts
