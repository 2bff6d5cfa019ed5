"""Rewards: does a response follow the format, and is the answer in its last \\boxed{} right?

In:  response texts, and for each the index of its question (a list of dicts with a string 'answer').
Out: one float per trajectory, format (0 / 0.5) + accuracy (0 / 1), Eq. 4, and the named parts it is made of.
Run: python -c "import reward; print(reward.math_reward(r'<thinking></thinking> \\boxed{0.5}', '1/2'))"

Answers are tidied to one notation and, if their texts still differ, compared by value to 900 digits. No general parser:
math-verify's guesses at what it can not read, which pays wrong answers, and SymPy may expand 9^9^9^9 for ever. Here a
wrong 1 harms more than a wrong 0: what holds an unknown token is wrong, and counted in the part 'unparsed'.
"""
import ast
import operator
import random
import re
from functools import lru_cache

import mpmath

MAX_CHARS = 200  # longer answers are not read
MAX_POWER = 300  # a power above 10^300, or below 10^-300, is not read: no tower of powers takes time
REAL = mpmath.MPContext()  # a context of our own: threads and other users of mpmath keep their precision
REAL.dps = 1000

# Notations of the same thing, replaced in this order. '~' marks what stood in \text{} or behind a hard space.
REWRITES = [(re.compile(pattern), new) for pattern, new in [
    # wrappers and layout
    (r'^\s*\\(?:boxed|fbox)\s*\{(.*)\}\s*$', r'\1'), (r'\{,\}|,\\!', ','), (r'\\(left|right|displaystyle)(?![a-zA-Z])', ''),
    (r'\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{\s*([^{}]*)\}', r'~\1'), (r'(?<!\\)\\[!,;: ]', ' '),
    (r'^\s*~?\(([a-zA-Z])\)\s*$', r'\1'), (r'_\{(\w)\}', r'_\1'),
    # signs outside LaTeX
    ('[−–]', '-'), (r'\*\*', '^'), (r'[·⋅×]|\\cdot(?![a-z])|\\times(?![a-z])', '*'), (r'÷|\\div(?![a-z])', '/'),
    (r'√|(?<![a-zA-Z\\])sqrt(?![a-zA-Z])', r'\\sqrt '), (r'π|(?<![a-zA-Z\\])pi(?![a-zA-Z])', r'\\pi '), ('∞', r'\\infty '),
    # degrees, percent and currency are left out; units in Chinese get their symbols
    (r'\^\s*(\\circ|\{\s*\\circ\s*\})|[°º度]|\\?[$%]', ''), ('平方厘米', '~cm^2'), ('厘米', '~cm'), ('米', '~m'),
    # spaces, except between two words or numbers
    (r'\s+', ' '), (r'(?<![a-zA-Z0-9~]) | (?![a-zA-Z0-9~])|(?<=\d) (?=[a-zA-Z](?![a-zA-Z]))', ''),
    # fractions and roots without braces, mixed numbers
    (r'\\[dtc]frac', r'\\frac'), (r'\\frac ?(\d) ?(\d)', r'\\frac{\1}{\2}'), (r'\\sqrt ?(\d+|[a-zA-Z])', r'\\sqrt{\1}'),
    (r'^(-?)(\d+)(?:\\frac\{(\d+)\}\{(\d+)\}| (\d+)/(\d+))$', r'\1(\2+\3\5/\4\6)'),
]]
# The same with braces, from the innermost outwards until nothing changes. A digit before a fraction of digits, which
# could be a mixed number inside a longer formula, keeps its braces and so can not be read.
BRACES = [(re.compile(pattern), new) for pattern, new in [
    (r'(?<!\d)\\frac\{([^{}]*)\}\{([^{}]*)\}|\\frac\{(?!-?\d)([^{}]*)\}\{([^{}]*)\}', r'((\1\3)/(\2\4))'),
    (r'\\sqrt\{([^{}]*)\}', r'\\sqrt(\1)'), (r'\\sqrt\[(\d+)\]\{([^{}]*)\}', r'((\2)^(1/\1))'), (r'\^\{([^{}]*)\}', r'^(\1)'),
]]
# What may stand on one side only: a unit, or the 'x=' of 'x=5'. One letter is a unit only in \text{}, else a variable.
UNIT = re.compile(r'(?<=[\d)}i~])[~ ]*(?:(mm|cm|km|inch|feet|ft|mile|unit|degree|dollar|cent|hour|minute|second)(?:e?s)?'
                  r'|(?<=~)([mgsh]))(\^\(?[23]\)?)?$')
NAME = re.compile(r'^(?:m?\\angle ?\w+|[a-zA-Z]{1,2}(?:_\w)?|[a-z]\([a-z]\))=(?=[^=]+$)')
THOUSANDS = re.compile(r'[+-]?\d{1,3}(,\d{3})+(\.\d*)?')

TOKEN = re.compile(r'(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<name>\\[a-z]+|[a-zA-Z])|[-+*/^()]')
WORD = re.compile(r'(?<![\\a-zA-Z])(?:[a-zA-Z]{3}|[A-Z]{2}|or)')  # not a product of variables
FUNCTIONS = {name: getattr(REAL, name) for name in 'sqrt sin cos tan cot sec csc ln log10'.split()}
FUNCTIONS['log'] = FUNCTIONS.pop('log10')
