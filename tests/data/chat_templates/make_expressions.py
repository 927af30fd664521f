#!/usr/bin/env python3
"""Writes expressions.jsonl: small templates with what jinja2 3.1.6 makes of them.

    python3 tests/data/chat_templates/make_expressions.py    (needs jinja2)

The environment is the one that transformers renders chat templates in: ImmutableSandboxedEnvironment
with trim_blocks, lstrip_blocks, loopcontrols, its tojson and raise_exception.
"""
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {
    "s": "Hello, World", "u": "ÀÉ ßtraße ΣΑΣ \U0001f1eb\U0001f1f7 ǆ", "n": 7, "f": 2.5, "yes": True,
    "no": False, "nil": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "e": [],
    "d": {"b": 1, "a": [1, 2], "items": "x", "C": None}, "lines": " one\n\ntwo\r\nthree ",
    "m": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
          {"role": "user", "content": "ok", "n": 2}], "html": "<a href=\"x\">'&'</a>",
    "words": "the quick brown fox jumps over the lazy dog", "num": "12", "pad": "  xx  ",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2|7 // 2|-7 // 2|7 % 3|-7 % 3|7 % -3|2 ** 10|2 ** -1|2 ** 3 ** 2|-2 ** 2|7.5 // 2|7.5 % 2|-7.5 % 2
1 / 3|2 / 3|1e16|1e15|123456789012345678|1.5e300 * 1e10|0.1 + 0.2|1e-4|1e-5|100000.0|1.0|-0.0|5e-324|1_000|0x1f|0b11|0o17
1 < 2 < 3|1 < 3 < 2|1 == 1.0|1 == true|"a" < "b"|[1, 2] < [1, 3]|(1, 2) == (1, 2)|[1] == (1,)|none == none|1 != 2
"a" in s|"H" in s|3 in l|9 not in l|"a" in d|1 in d.values()|("a", 1) in [("a", 1)]|not yes|not not no|yes and 5|no or "x"|nil or e or 0
"a" "b"|"a" ~ 1 ~ none ~ true ~ 1.5|"ab" * 3|3 * "ab"|[1] * 2|[1] + [2]|(1,) + (2,)|"%s-%d-%05.2f-%x" % ("a", 3, 2.5, 255)|"%(a)s" % {"a": 1}|"%5s|%-5s|" % ("a", "b")|"%r" % "a'b"|"100%%" % ()
"{} {} {0}".format(1, 2)|"{0} {1}".format(1, 2)|"{a}:{b:>5}|{b:<5}|{b:^5}|".format(a=1, b="x")|"{:.2f} {:05d} {:,} {:x} {:+d}".format(3.14159, 42, 1234567, 255, 3)|"{{}}".format()|"{0[a]} {0[b]}".format({"a": 1, "b": 2})|"{!r}".format("x")|"{:%}".format(0.5)|"{:e}".format(12345.678)|"{:*^9}".format("ab")
s[0]|s[-1]|s[1:4]|s[::-1]|s[::2]|s[-3:]|s[:-3]|s[10:2:-2]|s[99]|l[0]|l[-1]|l[5]|l[1:]|l[::-1]|l[:1]|u[1]|u[-1]|u[2:5]|u[::-1]|d["a"]|d["zz"]|d.a[1]|d["items"]|(1, 2, 3)[1]|range(10)[3]|range(10)[2:8:3]
[1, "a", 1.5, none, true, [], {}, (1,), ()]|{"a": 1, 2: "b", none: [1]}|(1, "x")|["a'b", 'a"b', "a'\"b", "\n\t\\"]|[u]|"é"|["\x00\x7f\u200b\u00e9"]|{"a": {"b": [1, {"c": 2}]}}
s | upper|s | lower|u | upper|u | lower|u | title|u | capitalize|s | title|"they're bill's (x) -a <b" | title|s | capitalize|u.title()|u.swapcase()|u.upper()|u.lower()|"ΑΣ ΑΣΑ Σ".lower()|"ﬁx".upper()
pad | trim|pad | trim("x ")|pad.strip()|pad.lstrip() ~ "|"|pad.rstrip() ~ "|"|"xxaxx".strip("x")|"\u00a0a\u2003".strip()|"a\x1fb".split()|lines | trim
s | length|u | length|l | length|d | length|e | length|nil_undefined | length|"" | count|range(5) | length
l | first|l | last|e | first|e | last|s | first|s | last|d | first|u | last|range(3) | first|l | sum|[0.5, 1] | sum|m | sum(attribute="n")|l | sum(start=10)|e | sum
l | min|l | max|w | min|w | max|m | max(attribute="n")|e | max|w | max(case_sensitive=true)
l | sort|w | sort|w | sort(case_sensitive=true)|l | sort(reverse=true)|m | sort(attribute="n") | map(attribute="content") | join(",")|m | sort(attribute="n,content") | list | length|[[2, 1], [1, 2]] | sort|[1.5, 1, true] | sort|w | sort(attribute="x")|m | sort(attribute="zz") | length|[none, none] | sort|[{}, {}] | sort|[nil_x, nil_y] | sort | length|[none, 1] | sort|[{"a": 1}, {}] | sort|m | sort(attribute="role,zz") | length|[{"x": 1}, {}] | sort(attribute="x")|[none, none] | min|w | max(attribute="x")
w | unique | list|[1, 1.0, true, "1"] | unique | list|m | unique(attribute="role") | list | length|w | join|l | join(", ")|m | join("-", attribute="role")|[1, none, "x"] | join("|")|e | join("x")
l | reverse | list|s | reverse|l | list|s | list|d | list|d | items | list|d.items() | list|d.keys() | list|d.values() | list|d | dictsort|{"b": 1, "A": 2} | dictsort|{"b": 1, "A": 2} | dictsort(true)|{"b": 1, "a": 2} | dictsort(by="value")|{"b": 1, "a": 2} | dictsort(reverse=true)
m | selectattr("role", "equalto", "user") | list | length|m | rejectattr("role", "==", "user") | map(attribute="content") | list|m | selectattr("zz") | list|m | selectattr("n", "gt", 1) | list | length|m | selectattr("role", "in", ["user"]) | list | length|l | select("odd") | list|l | reject("odd") | list|l | select("greaterthan", 1) | list|[0, 1, "", "a"] | select | list|[0, 1, "", "a"] | reject | list|m | selectattr("zz", "defined") | list|m | selectattr("zz", "undefined") | list | length
m | map(attribute="role") | list|m | map(attribute="zz", default="-") | list|w | map("upper") | list|w | map("replace", "a", "x") | join|l | map("string") | list|m | map(attribute="content.0") | list
m | groupby("role") | list | length|m | groupby("n") | map(attribute="grouper") | list|m | groupby("n") | map("first") | list|(m | groupby("role"))[1].list | length
[1, 2, 3, 4, 5] | batch(2) | list|[1, 2, 3, 4, 5] | batch(2, 0) | list|[1, 2, 3, 4, 5] | slice(2) | list|[1, 2, 3, 4, 5] | slice(3, 0) | list
s | replace("l", "L")|s | replace("l", "L", 1)|s.replace("l", "", 2)|"aaa".replace("", "-")|"aaa" | replace("a", "b", 2)|n | replace(7, 8)|"".replace("", "x")|"abc".replace("b", "")
d | tojson|[1.0, 1e20, none, true, "é\n\"<>&'"] | tojson|d | tojson(indent=2)|{} | tojson(indent=2)|[[], {}] | tojson(indent=1)|d | tojson(sort_keys=true)|"é\U0001f600" | tojson(ensure_ascii=true)|d | tojson(separators=(",", ":"))|{1: 2, none: 3, true: 4, 1.5: 5} | tojson|"\x7f\u2028\x01" | tojson|(1, 2) | tojson|d | tojson(indent="\t")|"x" | tojson
"42" | int|"4.9" | int|"x" | int|"x" | int(5)|"0x1f" | int(base=16)|"11" | int(base=2)|3.9 | int|-3.9 | int|true | int|" 12 " | int|"1_000" | int|nil | int|none | int(default=3)|"1e3" | int
"1.5" | float|"x" | float|"x" | float(2.5)|3 | float|"inf" | float|" 2 " | float|none | float|"1e400" | float
2.5 | round|3.5 | round|2.675 | round(2)|2.7 | round(0, "floor")|2.1 | round(method="ceil")|1234.567 | round(-2)|7 | round|1.005 | round(2)|-2.5 | round
-5 | abs|5.5 | abs|"x" | string|5 | string|none | string|true | string|l | string|f | string
lines | indent|lines | indent(2)|lines | indent(2, true)|lines | indent(2, blank=true)|lines | indent("> ")|"a\nb" | indent(width=1, first=true)|"" | indent
html | e|html | escape|html | forceescape|(html | e) ~ "<"|(html | e) + "<b>"|(html | safe) + "<b>"|html | e | e|"<" | safe ~ "<"
words | truncate(20)|words | truncate(20, true)|words | truncate(20, end="!")|words | truncate(43)|words | truncate(38, leeway=0)|words | wordcount|"x" | center(5) ~ "|"|"xy" | center(5) ~ "|"|"a b/c?d=é" | urlencode|{"a b": "c/d"} | urlencode
"%s, %s" | format("a", 1)|"%(x)s" | format(x=3)|undefined_name | default("d")|none | default("d")|"" | default("d", true)|0 | d(5, boolean=true)|undefined_name | d|undefined_name ~ "x"
s.split()|s.split(",")|s.split(", ")|"a,b,c".split(",", 1)|"a,b,c".rsplit(",", 1)|" a  b ".split()|" a  b ".split(" ")|" a b c ".split(none, 1)|" a b  c ".rsplit(none, 1)|"".split()|"".split(",")|"a</think>b</think>c".split("</think>")[-1]|lines.splitlines()|"a\r\nb\rc\x85d\n".splitlines(true)|"a-b-c".partition("-")|"a-b-c".rpartition("-")|"abc".partition("x")|"abc".rpartition("x")|"aXbX".rsplit("X")|"aaaa".split("aa")|"aaaa".rsplit("aa", 1)
s.startswith("He")|s.startswith(("x", "H"))|s.endswith("ld")|s.startswith("l", 2)|s.endswith("lo", 0, 5)|s.find("o")|s.rfind("o")|s.find("zz")|s.index("W")|s.rindex("o")|s.find("o", 5)|u.find("ß")|s.count("l")|"aaaa".count("aa")|"abc".count("")|"abc".find("")|"éa".find("a")
"12".isdigit()|"1a".isdigit()|"²".isdigit()|"abc".isalpha()|"ab1".isalnum()|" \t".isspace()|"".isspace()|"ABC".isupper()|"abc1".islower()|"Ab Cd".istitle()|"½".isnumeric()|"½".isdecimal()|"a_1".isidentifier()|"1a".isidentifier()|"é".isascii()|"A1".isupper()|"ǅ".isupper()|"".isalpha()
"5".zfill(3)|"-5".zfill(4)|"a".center(4, "*")|"ab".center(5, "*")|"a".ljust(3) ~ "|"|"a".rjust(3, "-")|"-".join(["a", "b"])|"-".join("abc")|"TestHook".removeprefix("Test")|"TestHook".removesuffix("Hook")|"abc".removeprefix("x")|"ß".casefold() in "ssß"
d.get("a")|d.get("zz")|d.get("zz", 5)|d.get("zz", none) is none|l.index(2)|l.count(3)|(1, 2, 1).count(1)|(1, 2).index(2)|d.copy()|d.a.count(1)
s is string|n is number|n is integer|f is float|f is integer|true is integer|true is number|true is boolean|nil is none|d is mapping|l is mapping|l is sequence|s is sequence|d is sequence|l is iterable|n is iterable|s is iterable|undefined_name is defined|undefined_name is undefined|s is defined|n is odd|n is even|n is divisibleby(7)|n is divisibleby 3|n is eq 7|n is sameas n|none is sameas none|1 is sameas true|yes is true|no is false|1 is true|"abc" is lower|"ABC" is upper|1 is in [1, 2]|3 is not in l|range is callable|s is callable|"upper" is filter|"odd" is test|"x" is escaped|n is gt 5 and n is lt 9|n is ge(7)|not n is odd|n is not odd
range(5) | list|range(2, 5) | list|range(10, 0, -3) | list|range(0) | list|range(3)|range(1, 9, 2)|range(5) | sum|2 in range(3)|range(3) == range(0, 3)
dict(a=1, b=2)|dict([("a", 1)])|dict({"a": 1}, b=2)|dict()|namespace(a=1).a|namespace({"a": 2}).a|namespace(a=1).zz|cycler("a", "b").next()|joiner("|")()
"a" if yes else "b"|"a" if no else "b"|"a" if no|("a" if no) ~ "x"|1 if no else 2 if no else 3|[1, 2 if no, 3]
d.zz|d.zz is defined|d["zz"] is defined|d.zz ~ "x"|l[9] is defined|nil_x|nil_x.y|nil_x["y"]|nil_x()|nil_x + 1|-nil_x|nil_x < 1|nil_x == nil_y|nil_x in [1]|1 in nil_x|nil_x | list|nil_x | join|nil_x | upper|nil_x | tojson|nil_x | int|nil_x | first|nil_x[1:2]|"a" in nil_x|nil_x * 2|"x" * nil_x|none.x|none.x.y|5.x|s.nope|s.nope()|l.nope
1 + "a"|"a" + 1|none + 1|[1] + (1,)|1 // 0|1 / 0|1.0 % 0|"a" < 1|none < 1|[1] < ["a"]|{} < {}|5 in 5|1 in "a"|5 | length|5 | list|5()|"x".upper(1)|s.index("zz")|l.index(99)|[1, "a"] | sort|{}[[1]]|{[1]: 2}|5[0]|5[1:]|s["x"]|"%d" % "a"|"%s %s" % "a"|"{} {}".format(1)|[1] | sum(start="a")|l.append(1)|l.pop()|d.update({})|d.pop("a")|d.setdefault("q", 1)|l.sort()|l.clear()|s.__class__|s.__class__.__mro__|"".__class__|l.__len__()|d.__class__ is defined|range(100001)|range(1, 2, 0)|"a".split("")|"a".join([1])|"ab".center(5, "xx")|[[1]] | unique | list|d | first | first|5 | join|{"a": nil_x} | tojson|range(3) | tojson|namespace() | tojson|dict(1)|"x" | nope if no else 1|1 is nope if no else 2|m | map("nope") | list|m | selectattr("n", "nope") | list|(l | map("string")) | length|(l | reverse)[0]|(l | map("string"))[0]|s | round|s | abs|"abc" | attr("nope")|d | attr("a")
"\x41\u00e9\U0001F600\101\t\q\'\"\\"|'it''s'|"line\
joined"|"{% x %}"|"}}"|{"a": {"b": 1}}["a"]["b"]|{"a": {"b": 1}}.a.b|[1, 2,]|{"a": 1,}|(1,)|()|[]|d.a.0|"a" ~ "b" | upper|("a" ~ "b") | upper|1 + 2 | string ~ 3|-1 | abs|(-1) | abs|not 1 == 2|1 is number and 2 is number|yes is true is false
"""

TEMPLATES = r"""
{% if no %}a{% elif yes %}b{% else %}c{% endif %}
{% for x in l %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.length }}{{ loop.depth }};{% endfor %}
{% for x in e %}x{% else %}empty{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d | dictsort %}{{ k }}{% endfor %}
{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}
{% for x in l if x > 5 %}a{% else %}b{% endfor %}
{% for x in l recursive %}{{ x }}{% if x == 3 %}{{ loop([7, 8]) }}{% endif %}{{ loop.depth0 }}{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle("a", "b") }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in "abc" %}{{ x }}-{% endfor %}
{% for x in nil_x %}a{% endfor %}done
{% for x in 5 %}a{% endfor %}
{% for x in l %}{{ loop.nope }}{% endfor %}
{% set x = 1 %}{% for y in l %}{{ x }}{% set x = y %}{% endfor %}{{ x }}
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set (a, b) = (3, 4) %}{{ a }}{{ b }}
{% set x = 1, 2 %}{{ x }}
{% set ns = namespace(x=0) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}
{% set ns.x = 1 %}
{% set d.x = 1 %}
{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x is string }}
{% set x | upper | trim %} a{{ n }}b {% endset %}[{{ x }}]
{% set x %}{% set y = 5 %}{% endset %}[{{ y }}]
{% macro f(a, b=2, c="x" ~ a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c=4) }}|{{ f(b=5, a=6) }}|{{ f() }}
{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}
{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}body{{ n }}{% endcall %}
{% macro f() %}{{ caller(1, 2) }}!{% endmacro %}{% call(a, b) f() %}{{ a + b }}{% endcall %}
{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}
{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f() %}{% set x = 5 %}{% endmacro %}{% set x = 1 %}{{ f() }}{{ x }}
{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}
{% macro f(a) %} {{ a }} {% endmacro %}[{{ f("x") | trim }}]{{ f.name }}
{% filter upper %}abc{{ s }}{% endfilter %}
{% filter replace("a", "b") | upper %}aaa{% endfilter %}
{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}[{{ x }}]
{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}
{% generation %}a{% set q = 1 %}{% endgeneration %}[{{ q }}]
{% raw %}{{ x }} {% if %}{% endraw %}
a {%- raw -%}  {{ x }}  {%- endraw -%} b
{# comment #}a{#- x -#} b
{% if yes %}
line
{% endif %}
after
  {% if yes %}
  indented
  {% endif %}
  {%+ if yes %}kept{% endif %}
x  {% if yes +%}
 keeps newline{% endif %}
a
{{- " b " -}}
c
{{ "x" }}
 {{ "y" }}
	{% set z = 1 %}	
tab
  {# c #}
next
  {#- c -#}
next
{% for x in l -%}
  {{ x }}
{%- endfor %}
{{ 1 }}{% if yes %}{{ 2 }}
{% endif %}{{ 3 }}
{% if yes %}a{% endif %}

b
{% block main %}{{ n }}{% set q = 2 %}{% endblock %}[{{ q }}]
{% print n + 1 %}
{% set c = cycler("a", "b") %}{% for x in l %}{{ c.next() }}{{ c.current }}{% endfor %}
{% set j = joiner() %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{{ raise_exception("stop " ~ n) }}
{% if no %}{{ "x" | nope }}{% endif %}ok
{% if yes %}{{ "x" | nope }}{% endif %}ok
{{ "x" | nope }}
{{ 1 is nope }}
{% nope %}
{% if yes %}
{% endfor %}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ }}
{% for %}{% endfor %}
{% set %}
{{ "a }}
{# open
{% raw %}open
{% break %}
{{ a b }}
{{ f(a=1, 2) }}
{{ x.  }}
{% macro f(a=1, b) %}{% endmacro %}
{% set true = 1 %}
{{ 1 is odd is even }}
{% else %}
{% if yes %}{% else %}{% else %}{% endif %}
{{ {1} }}
{% set g = namespace(v=[]) %}{% for x in l %}{% set g.v = g.v + [x * 2] %}{% endfor %}{{ g.v }}
{% for x in m %}{{ x.role }}:{{ x["content"] }}{{ x.nope }}{% endfor %}
{% for x in m[::-1] %}{{ x.content }}{% endfor %}{% for x in m[1:] %}{{ x.content }}{% endfor %}
{% set x = m | selectattr("role", "equalto", "user") | list | last %}{{ x.content }}
{%- for i in range(3) -%}{{ i }}{%- endfor -%}
{% set q = [] %}{{ q.append(1) }}
{{ range.__class__ }}{{ f.__globals__ }}{{ cycler.__init__.__globals__ }}
{{ loop }}
{% for a in l %}{% for b in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% set x = namespace(f=1) %}{% for y in l if x.f < 3 %}{{ y }}{% set x.f = x.f + 1 %}{% endfor %}
"""


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model is trained on; the text is unchanged."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def render(template):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    try:
        return {"expected": env.from_string(template).render(**VARIABLES)}
    except jinja2.exceptions.TemplateSyntaxError:
        return {"error": "syntax"}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": "raised", "message": str(error)} if raised else {"error": "runtime"}
    except SyntaxError:  # From Python, which compiles what jinja2 makes of the template.
        return {"error": "syntax"}
    except Exception:  # pylint: disable=broad-except
        return {"error": "runtime"}


def split_alternatives(line):
    """Expressions of a line: a bar without blanks around it separates them."""
    parts, depth, quote, start, i = [], 0, "", 0, 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == "|" and line[i - 1:i] != " ":
            parts.append(line[start:i])
            start = i + 1
        i += 1
    return parts + [line[start:]]


def main():
    templates = []
    for line in EXPRESSIONS.strip("\n").replace("\\\n", "\\\0").split("\n"):
        for part in split_alternatives(line.replace("\\\0", "\\\n")):
            templates.append("{{ " + part + " }}")
    lines = TEMPLATES.strip("\n").split("\n")
    templates += lines
    templates += ["\n".join(lines[i:i + 3]) for i in range(48, 76)]
    rows = [{"variables": VARIABLES}]
    rows += [{"template": t, **render(t)} for t in templates]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    pathlib.Path(__file__).with_name("expressions.jsonl").write_text(text, encoding="utf-8")
    kinds = [row.get("error", "ok") for row in rows[1:]]
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))})


if __name__ == "__main__":
    main()
