#!/usr/bin/env python3
"""Small templates as Jinja2 renders them with transformers' settings: tests/common/jinja/fixtures/jinja_oracle.json.

The templates are ours: one or a few per feature, and expressions that are drawn from a grammar (--drawn N for more, to a
file of its own with --output). Each case has its text and its {% generation %} spans in bytes, or "refused": true.
"""
# requires: transformers==5.24.0 jinja2==3.1.6
import argparse
import datetime
import json
import os
import random

from transformers.utils import chat_template_utils as hf

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURE = os.path.join(HERE, "..", "common", "jinja", "fixtures", "jinja_oracle.json")
NOW = 1764081000  # 2025-11-25 14:30:00 UTC

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Grüße, 世界! \U0001f600 "},
        {"role": "assistant", "content": "<think>hm</think>\n\nfine", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"city": "Paris", "n": 3, "x": [1.5, None, True]}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d \"q\" é", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "enum": ["a", "b"]}, "n": {"type": "integer"}}, "required": ["city"]}}}],
    "nothing": None, "yes": True, "no": False, "zero": 0, "n": 7, "minus": -3, "pi": 3.25, "tiny": 1e-7, "huge": 1e22, "big": 123456789012345678901234567890,
    "empty": "", "word": "hello", "text": "  The quick brown-fox's \"den\"\n\n jumps\tover  ", "uni": "Straße ΑΣ ﬁn ǅ \u00a0É",
    "numbers": [3, 1, 2, 3], "words": ["b", "A", "c", "a"], "mixed": [1, "a", None, True, 2.5, [1], {"k": "v"}],
    "d": {"b": 1, "a": {"x": "y", "items": 5}, "C": [1, 2], "get": "key"}, "none_list": [], "none_dict": {}, "add_generation_prompt": True,
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cid", "age": 30, "tags": []}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}],
}

TEMPLATES = r"""
plain text
{{ word }} {{ nothing }} {{ yes }} {{ no }} {{ n }} {{ pi }} {{ tiny }} {{ huge }} {{ big }} {{ missing }}|
{{ mixed }} {{ d }} {{ none_list }} {{ none_dict }} {{ (1,) }} {{ (1, 2) }} {{ () }} {{ 1, 2 }}
{{ text }}|{{ [text] }}|{{ ["it's", 'say "x"', 'both \' and "', '\\', '\x07\u200b\u00e9'] }}
{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.0 }} {{ 1e-4 }} {{ 1e-5 }} {{ 2.5e-10 }} {{ -0.0 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ True + 1 }} {{ 2 * 'ab' }} {{ [0] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }}
{{ 1 + }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ missing.attribute }}
{{ word.nothing_here }}|{{ d.nothing_here }}|{{ d['nope'] }}|{{ numbers[9] }}|{{ numbers[-1] }}|{{ word[1] }}|{{ uni[4] }}|{{ word[-9] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ True == 1 }} {{ '1' == 1 }} {{ none == false }} {{ d == d }} {{ [1] == (1,) }} {{ missing == other }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 'el' in word }} {{ 3 in numbers }} {{ 'a' in d }} {{ 'z' not in d }} {{ not 'a' in d }} {{ 'x' in missing }} {{ none in mixed }}
{{ 1 in 5 }}
{{ yes and n }} {{ no or word }} {{ nothing or zero }} {{ not nothing }} {{ yes and no or n }} {{ missing or 'm' }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| {{ ('x' if no) is undefined }} {{ 1 if no else 2 if no else 3 }}
{{ word ~ n ~ nothing ~ missing ~ [1] }} {{ 1 ~ 2 + 3 }} {{ 'a' 'b' "c" }}
{{ word[1:3] }} {{ word[::-1] }} {{ word[-2:] }} {{ word[:-1] }} {{ numbers[1:] }} {{ numbers[::2] }} {{ numbers[::-1] }} {{ uni[2:8] }} {{ uni[::3] }} {{ word[10:] }}| {{ word[3:1] }}| {{ (1,2,3)[1:] }} {{ numbers[none:2] }} {{ word[-100:2] }} {{ numbers[5:0:-2] }}
{{ missing[1:] }}
{{ messages[1:]|length }} {{ messages[-1].role }} {{ messages[0]['content'] }} {{ messages.0.role }} {{ messages[2].tool_calls[0].function.arguments.city }}
{% if yes %}a{% elif no %}b{% else %}c{% endif %}{% if no %}a{% elif yes %}b{% else %}c{% endif %}{% if no %}a{% elif no %}b{% else %}c{% endif %}
{% for m in messages %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}:{{ m.role }};{% endfor %}
{% for x in numbers %}{{ loop.previtem }}-{{ x }}-{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {{ loop.changed(x) }};{% else %}none{% endfor %}{% for x in [] %}a{% else %}empty{% endfor %}{% for x in missing %}a{% else %}undefined{% endfor %}
{% for x in numbers if x > 1 %}{{ x }}{{ loop.last }}{% endfor %}{% for x in none_list if x %}{% else %}e{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}{% for c in word %}{{ c }}.{% endfor %}
{% for a, b in numbers %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in nothing %}{% endfor %}
{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(5, 1, -2) %}{{ x }}{% endfor %}{{ range(3)|list }}{{ range(4)[1:]|list }}{{ range(3)|length }}{{ 2 in range(3) }}
{{ range(1000000) }}
{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{% if loop.index == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% break %}
{% for n in tree recursive %}[{{ n.v }}@{{ loop.depth }}{{ loop(n.kids) }}]{% endfor %}
{% set x = 1 %}{% for i in numbers %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
{% set ns = namespace(x=0, found=false) %}{% for i in numbers %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.found }}{{ ns.missing }}|{{ ns['x'] }}
{% set q = 1 %}{% set q.x = 2 %}
{% set ns = namespace() %}{% set ns._x = 2 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}
{% set a, b = [1] %}
{% set x %}  in {{ word }} {% endset %}[{{ x }}]{% set y | trim | upper %}  in {{ word }} {% endset %}[{{ y }}]
{% if yes %}{% set v = 5 %}{% endif %}{{ v }}{% if no %}{% set w = 5 %}{% endif %}{{ w }}|
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 4 %}{{ c }}{% endwith %}{{ a }}{{ c }}|
{% macro m(a, b=2, c=b) %}{{ a }},{{ b }},{{ c }}{% endmacro %}{{ m(1) }};{{ m(1, 5) }};{{ m(b=7, a=0) }};{{ m() }};{{ m(*[1, 2, 3]) }};{{ m(**{'a': 9}) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
{% macro m(a) %}<{{ caller() }}{{ a }}>{% endmacro %}{% call m(1) %}in {{ word }}{% endcall %}{% macro l(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) l([5, 6]) %}[{{ x }}:{{ i }}]{% endcall %}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}{{ f(2)|length }}
{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(1) }}
{% set v = 'outer' %}{% macro m() %}{{ v }}{% set v = 'in' %}{{ v }}{% endmacro %}{{ m() }}{{ v }}{% set v = 'later' %}{{ m() }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
{% filter upper %}a {{ word }}{% endfilter %}{% filter replace('a', 'b')|trim %} aba {% endfilter %}
{% print word, n %}
{% raw %}{{ not }} {% if %}{% endraw %}|{%- raw -%}  a  {%- endraw -%}  b
{# comment {{ x }} #}a{#- c -#}  b  {#- d #}c
a  {%- if yes %}  b  {%- endif -%}  c
{{- word -}}  x  {{- word }} y
{% generation %}a{{ word }}{% endgeneration %}b{% for m in messages %}{% generation %}{{ m.role }}é{% endgeneration %};{% endfor %}
{% if yes %}{% generation %}{% set z = 1 %}{{ z }}{% endgeneration %}{% endif %}{{ z }}|
{{ raise_exception('stop: ' + word) }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y, %H:%M:%S %A %B %j %-d %p %I %y %%') }}|{{ strftime_now('') }}|{{ strftime_now('%z%Z%f') }}
{{ tools|tojson }} {{ tools|tojson(indent=2) }} {{ mixed|tojson }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ word|tojson }} {{ uni|tojson(ensure_ascii=true) }} {{ uni|tojson }} {{ "\"\\/\n\t\r\b\f\x01\x7f" | tojson }} {{ none_dict|tojson(indent=4) }} {{ none_list|tojson(indent=1) }} {{ [[1, []], {}]|tojson(indent=1) }} {{ {1: 2, none: 3, true: 4, 1.5: 6}|tojson }} {{ big|tojson }} {{ "\U0001f600"|tojson(ensure_ascii=true) }} {{ d|tojson(indent='--') }} {{ 1e22|tojson }} {{ (1, 2)|tojson }} {{ numbers|tojson(indent=0) }}
{{ missing|tojson }}
{{ numbers|map('string')|tojson }}
{{ {(1,): 2}|tojson }}
{{ namespace(a=1)|tojson }}
{{ [1, 2]|join }} {{ numbers|join(', ') }} {{ mixed|join('-') }} {{ people|join(', ', attribute='name') }} {{ word|join('.') }} {{ d|join('+') }}
{{ word|first }}{{ word|last }}{{ numbers|first }}{{ numbers|last }}{{ none_list|first }}|{{ none_list|last }}|{{ d|first }}{{ d|last }}
{{ nothing|default('x') }} {{ missing|default('x') }} {{ nothing|default('x', true) }} {{ empty|d('x', boolean=true) }} {{ missing|default }}| {{ d.nope|default(d.a) }}
{{ word|length }} {{ uni|length }} {{ numbers|count }} {{ d|length }} {{ missing|length }} {{ d.items()|length }}
{{ n|length }}
{{ numbers|map('string')|length }}
{{ text|trim }}|{{ text|trim(' T') }}|{{ word|trim('ho') }}|{{ n|trim }}|{{ nothing|trim }}|{{ missing|trim }}|
{{ word|upper }} {{ 'ÀÉ'|lower }} {{ uni|upper }} {{ uni|lower }} {{ uni|capitalize }} {{ text|title }} {{ uni|title }} {{ nothing|upper }} {{ word|capitalize }}
{{ word|replace('l', 'L') }} {{ word|replace('l', 'L', 1) }} {{ word|replace('', '-') }} {{ n|replace(7, 8) }}
{{ numbers|sort }} {{ numbers|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|join }} {{ word|sort }}
{{ mixed|sort }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'a': 2, 'b': 1}|dictsort(by='value') }} {{ {'a': 2, 'b': 1}|dictsort(reverse=true) }}
{{ numbers|unique|list }} {{ words|unique|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ numbers|min }} {{ numbers|max }} {{ words|min }} {{ words|max }} {{ people|max(attribute='age') }} {{ none_list|min }}| {{ numbers|sum }} {{ people|sum(attribute='age') }} {{ numbers|sum(start=10) }}
{{ people|selectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('tags', 'defined')|list|length }} {{ people|rejectattr('age', 'equalto', 30)|map(attribute='name')|join }} {{ numbers|select('odd')|list }} {{ numbers|reject('gt', 1)|list }} {{ mixed|select|list }} {{ nothing|selectattr('x')|list }} {{ people|selectattr('age', '>', 26)|map(attribute='name')|list }} {{ messages|selectattr('role', 'in', ['user', 'tool'])|list|length }}
{{ words|map('upper')|list }} {{ people|map(attribute='tags', default='none')|list }} {{ people|map(attribute='tags.0')|list }} {{ numbers|map('string')|join('|') }} {{ words|map('replace', 'a', 'z')|list }} {{ zero|map('upper')|list }}
{% set g = numbers|select('odd') %}{{ g|list }}{{ g|list }}{{ g is iterable }}{{ g is sequence }}{{ yes if g else no }}
{{ numbers|reverse|list }} {{ word|reverse }} {{ numbers|list }} {{ word|list }} {{ d|list }}
{{ numbers|batch(3)|list }} {{ numbers|batch(3, 0)|list }} {{ numbers|slice(3)|list }} {{ numbers|slice(3, 'f')|list }}
{{ '42'|int }} {{ ' 42 '|int }} {{ '4.9'|int }} {{ 'x'|int }} {{ 'x'|int(default=5) }} {{ '0x1f'|int(base=16) }} {{ pi|int }} {{ -2.7|int }} {{ nothing|int }} {{ yes|int }} {{ '3.5'|float }} {{ 'x'|float }} {{ n|float }} {{ ' 1e3 '|float }} {{ '1_000'|int }} {{ [1]|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 1.25|round(1) }} {{ minus|abs }} {{ -2.5|abs }} {{ -yes|abs }}
{{ text|indent }}|{{ "a\nb\n\nc"|indent(2) }}|{{ "a\nb\n\nc"|indent(2, true) }}|{{ "a\n\nb"|indent(2, blank=true) }}|{{ "a\nb"|indent('> ', first=true) }}|{{ ''|indent }}|{{ "a\n"|indent }}
{{ word|center(11) }}|{{ word|center(10) }}|{{ text|wordcount }}|{{ 'a b c d e f'|truncate(7) }}|{{ 'abcdefghijklmnop'|truncate(8, true) }}|{{ 'foo bar baz qux'|truncate(9, false, '..', 0) }}
{{ '<a href="x">&\''|escape }} {{ '<'|e|e }} {{ '<'|safe + '<' }} {{ '<' + '<'|safe }} {{ '<'|safe ~ '<' }} {{ ('<'|safe)|upper }} {{ ['<'|safe] }} {{ ('%s'|safe) % '<' }} {{ ('{}'|safe).format('<') }} {{ ('-'|safe).join(['<']) }} {{ ('a-b'|safe).replace('-', '<') }} {{ '<'|safe|string + '>' }} {{ ['<'|safe]|join('<') }} {{ ('<'|safe)|tojson }} {{ ('<b>'|safe)[0] + '<' }}
{{ '%s is %d, %.2f %5s|%-5s|%05d %x %r %%' % ('a', 3, 2.345, 'r', 'l', 42, 255, 'q') }} {{ '%s' % word }} {{ '%(a)s' % {'a': 1} }} {{ 'a %s b'|format(n) }} {{ '%+d % d %e %g'|format(1, 2, 12345.678, 0.0001) }} {{ '%s' % [1] }}
{{ '%s %s' % 'a' }}
{{ '%d' % 'a' }}
{{ '{} {}'.format('a', 1) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=n) }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:.2f}|{:,}|{:x}|{:+}|{:5}|{:%}|{:e}|{:.3}'.format('a', 'b', 'c', 'd', 42, 3.14159, 1234567, 255, 1, 'q', 0.5, 1234.5, 'abcdef') }} {{ '{{}}'.format() }} {{ '{0.a}'.format({'a': 1}) if no else '' }} {{ '{0[a]}'.format({'a': 1}) }} {{ '{!r}'.format('x') }} {{ '{}'.format(none) }} {{ '{}'.format(1.0) }}
{{ '{} {}'.format('a') }}
{{ word.upper() }} {{ word.capitalize() }} {{ word.title() }} {{ 'a-b c'.title() }} {{ "it's".title() }} {{ 'aB'.swapcase() }} {{ word.startswith('he') }} {{ word.startswith(('x', 'h')) }} {{ word.endswith('lo') }} {{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ word.replace('l', '') }} {{ word.find('l') }} {{ word.rfind('l') }} {{ word.find('z') }} {{ word.index('e') }} {{ word.count('l') }} {{ uni.find('ß') }} {{ 'aaa'.count('aa') }} {{ 'abc'.find('c', 1) }}
{{ word.index('z') }}
{{ text.split() }} {{ text.split(' ') }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'a</t>b</t>c'.split('</t>')[-1] }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }} {{ ' a b  c '.split(none, 1) }}
{{ word.split('') }}
{{ word.isalpha() }} {{ '12'.isdigit() }} {{ '1a'.isalnum() }} {{ ''.isalpha() }} {{ ' \n'.isspace() }} {{ 'AB'.isupper() }} {{ 'Ab'.islower() }} {{ 'a1'.islower() }} {{ ', '.join(words) }} {{ 'ab'.center(5, '*') }} {{ 'ab'.ljust(4) }}| {{ 'ab'.rjust(4, '0') }} {{ '-7'.zfill(4) }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'É'.lower() }} {{ 'ΑΣ'.lower() }} {{ 'ΣΑΣ Σ'.lower() }} {{ 'ß'.upper() }} {{ 'ﬁ x'.title() }}
{{ ', '.join(numbers) }}
{{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ d.keys()|list }} {{ d['get'] }} {{ d.a['items'] }} {{ d.copy() == d }} {{ 'b' in d.keys() }} {{ numbers.index(2) }} {{ numbers.count(3) }} {{ (1, 1).count(1) }}
{{ numbers.append(1) }}
{{ d.update({}) }}
{{ d.pop('a') }}
{{ word.__class__ }}|{{ d.__class__ }}|{{ d['__class__'] }}
{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }} {{ {'a': 1, 'a': 2} }} {{ {'k': [1, {'z': none}]} }} {{ {1: 'a', true: 'b'} }} {{ dict() }}
{{ {[1]: 2} }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b{{ j() }}
{{ n is number }} {{ n is integer }} {{ pi is float }} {{ yes is boolean }} {{ yes is integer }} {{ word is string }} {{ d is mapping }} {{ numbers is sequence }} {{ word is sequence }} {{ d is sequence }} {{ numbers is iterable }} {{ n is iterable }} {{ nothing is none }} {{ missing is defined }} {{ missing is undefined }} {{ word is defined }} {{ nothing is not none }} {{ d.zz is defined }} {{ missing is none }} {{ missing is iterable }} {{ missing is sequence }} {{ yes is true }} {{ no is false }} {{ 1 is true }} {{ range is callable }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(3) }} {{ n is eq 7 }} {{ n is gt(3) }} {{ n is in numbers }} {{ 3 is in(numbers) }} {{ word is lower }} {{ word is upper }} {{ 'AB' is upper }} {{ nothing is sameas none }} {{ numbers is sameas numbers }} {{ 'a' is sameas 'b' }} {{ ('x'|safe) is escaped }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ big is integer }} {{ d.items() is iterable }} {{ d.items() is sequence }} {{ (1, 2) is sequence }} {{ d is string or n is number }} {{ not n is string }}
{{ n is nope }}
{{ n|nope }}
{{ n is odd is even }}
{{ none|tojson }} {{ true|tojson }} {{ [none]|string }} {{ [1]|string + 'x' }}
{{ [1, 2, 3,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ [] }} {{ {} }} {{ [[]] }} {{ ((1)) }}
{{ "a\tb\n\x41\u00e9\U0001f600\101\q\\" }} {{ 'it\'s' }} {{ "line \
continued" }}
{{ -n }} {{ +n }} {{ - -n }} {{ -n|abs }} {{ (-n)|abs }} {{ -pi }} {{ not not n }} {{ n - -3 }} {{ 2 - 1 - 1 }} {{ 2 ** 3 ** 2 }} {{ 10 - 2 * 3 }} {{ (10 - 2) * 3 }} {{ 7 // 2 * 2 }}
{{ +missing }}
{{ missing + 1 }}
{{ missing() }}
{{ n() }}
{{ d.a.x.upper().lower()[0] }} {{ (d.a).x }} {{ messages|length > 3 and messages[0].role == 'system' }} {{ messages|map(attribute='role')|list }} {{ messages[2].content.split('</think>')[-1].lstrip('\n') }}
{{ 'a' in 'abc' == true }} {{ 1 == 1 in [true] }} {{ 3 > 2 == true }}
{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim + '\n\n' %}{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %}{{ system_message }}{% for message in messages %}{{ message.role }}{% endfor %}
{%- for message in messages -%}
    {%- if message.content is string -%}
        {{- '<|' + message.role + '|>\n' + message.content | trim + '<|end|>\n' -}}
    {%- else -%}
        {%- for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor -%}
    {%- endif -%}
{%- endfor -%}
{% for x in numbers %}
  {% if x > 1 %}
    big {{ x }}
  {% endif %}
    {# note #}
{% endfor %}
  {%+ if yes %} kept {% endif +%}
end
   {% set x = 1 -%}   tight   {{- x }}
{{ x }}   {% if x %}  
 a {% endif %} b
{% include 'x' %}
{% extends 'x' %}
{% nope %}
{% if yes %}
{% endif %}{% endif %}
{{ word
{% if yes
{# open
{{ 'open }}
{{ word } }}
{{ a b }}
{{ (1, 2 }}
{{ }}
{% %}
{% for in x %}{% endfor %}
{% set 1 = 2 %}{% set none = 1 %}
{{ loop }}{{ loop.index }}
{{ word.foo.bar }}
{{ numbers.0 }}
{{ text | replace("\n", " ") | trim | title }}
"""



def templates():
    """One a line, but for some that have line ends inside them."""
    lines = TEMPLATES.strip("\n").split("\n")
    at = 0
    while at < len(lines):
        count = 1
        if lines[at].endswith("line \\"):
            count = 2
        elif lines[at] == "{%- for message in messages -%}":
            count = 7
        elif lines[at] == "{% for x in numbers %}":
            count = 8
        elif lines[at].startswith("   {% set x = 1 -%}"):
            count = 3
        elif lines[at] == "{% if yes %}":
            count = 2
        yield "\n".join(lines[at:at + count])
        at += count
    for text in ("a\n", "a\n\n", "a\r\nb\rc\r\n", "{% if yes %}\r\na\r\n{% endif %}\r\n", "", "\n", "{{ word }}\n", "x {# c #}\ny", "  {# c #}\ny", "{% raw %}\n{{ x }}\n{% endraw %}\nz",
                 "  {% raw %} a {% endraw %}", "{% if yes -%}\n\n a{% endif %}", "\u00a0{%- if yes %}a{% endif %}", "a{% if yes %}\u2028{% endif %}"):
        yield text


NAMES = ["nothing", "yes", "no", "zero", "n", "minus", "pi", "tiny", "empty", "word", "text", "uni", "numbers", "words", "mixed", "d", "none_list",
         "none_dict", "missing", "people", "d.a", "messages"]
FILTERS = ["upper", "lower", "trim", "length", "first", "last", "list", "sort", "unique|list", "string", "int", "float", "round", "abs", "tojson", "default('x')",
           "default('x', true)", "join('-')", "reverse|list", "min", "max", "sum", "title", "capitalize", "replace('a', 'b')", "map('string')|list", "select|list",
           "items|list", "dictsort", "indent(2)", "safe", "e", "batch(2)|list", "map(attribute='name')|list", "selectattr('name')|list", "wordcount", "center(9)",
           "tojson(indent=1)", "truncate(6)", "slice(2)|list", "select('string')|list", "rejectattr('age', 'gt', 26)|list", "map('upper')|list", "count", "d"]
METHODS = ["upper()", "strip()", "split()", "split('e')", "startswith('h')", "items()", "get('a')", "get('a', 1)", "keys()", "replace('l', 'LL')", "title()",
           "find('o')", "count('l')", "index(2)", "name", "a", "x", "0", "isdigit()", "join(words)", "splitlines()", "lower()", "rstrip()", "format(1)", "values()|list",
           "zfill(9)", "partition('o')", "swapcase()", "capitalize()", "isalpha()", "islower()"]
TESTS = ["defined", "none", "string", "number", "mapping", "iterable", "sequence", "integer", "float", "boolean", "true", "false", "odd", "even", "lower", "upper",
         "in numbers", "eq 7", "divisibleby 2", "sameas none", "escaped", "undefined", "gt 1", "callable"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]


def expression(r, depth=0):
    kind = r.random()
    if depth > 2 or kind < 0.22:
        return r.choice(NAMES) if r.random() < 0.75 else r.choice(["1", "0", "2", "-1", "2.5", "'a'", "'l'", "''", "[]", "{}", "none", "true", "'a b'", "(1, 2)", "[1, 'x']", "{'a': 1}", "'%s'", "'{}'"])
    inner = lambda: expression(r, depth + 1)
    if kind < 0.42:
        return f"({inner()})|{r.choice(FILTERS)}"
    if kind < 0.57:
        return f"({inner()}).{r.choice(METHODS)}"
    if kind < 0.67:
        return f"({inner()}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
    if kind < 0.84:
        return f"({inner()}) {r.choice(BINARY)} ({inner()})"
    if kind < 0.9:
        if r.random() < 0.5:  # of names alone: Jinja2 folds constants, and slices a number that is one
            return f"({r.choice(NAMES)})[{r.choice(['1:', ':2', '::-1', '1:-1'])}]"
        return f"({inner()})[{r.choice(['0', '-1', inner()])}]"
    if kind < 0.94:
        return f"({inner()} if {inner()} else {inner()})"
    if kind < 0.97:
        return f"[{inner()}, {inner()}]"
    return r.choice([f"not ({inner()})", f"-({inner()})", f"{{'k': {inner()}}}"])


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


def case_of(template, context):
    try:
        compiled = hf._compile_jinja_template(template)
        own = json.loads(json.dumps(context))  # Jinja2's filter indent changes a list in place
        text, spans = hf._render_with_assistant_indices(compiled, **own)
        text.encode()
    except Exception:
        return {"template": template, "refused": True}
    return {"template": template, "text": text, "generated": [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawn", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default=FIXTURE)
    options = parser.parse_args()
    hf.datetime = FixedDate
    context = {**CONTEXT, "documents": None}
    r = random.Random(options.seed)
    cases = [case_of(t, context) for t in templates()]
    written = len(cases)
    while len(cases) < written + options.drawn:
        one = case_of("{{ " + expression(r) + " }}", context)
        if " object at 0x" in one.get("text", "") or "<generator" in one.get("text", "") or "<built-in" in one.get("text", "") or len(one.get("text", "")) > 400:
            continue  # addresses, which nobody can compare
        cases.append(one)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(json.dumps({"now": NOW, "context": context}, ensure_ascii=False)[:-1] + ', "cases": [\n')
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]}\n")
    print(f"{len(cases)} templates, {sum('refused' in c for c in cases)} of them refused -> {os.path.relpath(options.output)}")


if __name__ == "__main__":
    main()
