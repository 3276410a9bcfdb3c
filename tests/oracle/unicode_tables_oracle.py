#!/usr/bin/env python3
"""Writes engine/data/text/unicode_tables.cc: what Hugging Face tokenizers' libraries know of Unicode, and ours do not.

Source: Unicode's Character Database in the packages unicodedataplus (16, with each character's age) and unicodedata2
(17), beside Python 3.11's own (14, like PCRE2 10.42 and utf8proc 2.8). Every table is compared with tokenizers itself,
over all code points, before it is written. Run it by `make oracle`.
"""
# requires: tokenizers==0.23.3 unicodedataplus==16.0.0.post1 unicodedata2==17.0.1
import os
import string
import unicodedata as unicode14

import unicodedata2 as unicode17
import unicodedataplus as unicode16
from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
ALL = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def age(code):
    text = unicode16.age(chr(code))
    return float(text) if text not in ("Unassigned", "NA") else 99.0


def ranges(codes, key=lambda code: 0):
    """[(first, last)] of sorted codes; a new one begins where the key changes."""
    found = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1 and key(found[-1][0]) == key(code):
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def same(name, ours, theirs):
    wrong = sorted(set(ours) ^ set(theirs))
    if wrong:
        raise SystemExit(f"{name}: tokenizers differs at {[hex(code) for code in wrong[:20]]}")


# Oniguruma reads patterns with Unicode 16. A character that Unicode 14 does not know, or has in another category, is
# matched as the nearest one that it does know of its category and length, an ideograph as an ideograph: patterns name
# ranges of characters and \p{Han}, no other script of these.
def stand_ins():
    category = {code: unicode16.category(chr(code)) for code in ALL}
    old = [code for code in ALL if unicode14.category(chr(code)) == category[code] and category[code][0] not in "C"]
    new = [code for code in ALL if unicode14.category(chr(code)) != category[code]]

    def kind(code):
        return category[code], len(chr(code).encode()), unicode16.script(chr(code)) == "Han"
    by_kind = {}
    for code in old + [code for code in ALL if category[code] == "Cf" and unicode14.category(chr(code)) == "Cf"]:
        by_kind.setdefault(kind(code), []).append(code)

    def stand_in(code):
        return min(by_kind[kind(code)], key=lambda other: (abs(other - code), other))
    # One for each run of a kind keeps the table short.
    runs = ranges(new, kind)
    table = [(first, last, stand_in(first)) for first, last in runs]
    for name in ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "N", "Nd", "Nl", "No", "P", "S", "Sm", "So", "Sc",
                 "Sk", "C", "Z", "Han"):
        text = "\0".join(map(chr, ALL))
        kept = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed").pre_tokenize_str(text)
        rest = set()
        for _, (begin, end) in kept:
            rest.update(range(begin, end))
        matched = {code for i, code in enumerate(ALL) if 2 * i not in rest}
        if name == "Han":
            same(name, (code for code in ALL if unicode16.script(chr(code)) == "Han"), matched)
            wrong = [first for first, last, other in table
                     if (unicode16.script(chr(first)) == "Han") != (unicode16.script(chr(other)) == "Han")]
            assert not wrong, wrong
        else:
            same(name, (code for code in ALL if category[code].startswith(name)), matched)
    return table


# unicode_categories, which the pre-tokenizer Punctuation asks, has Unicode 8; beside it all of ASCII's signs count.
def punctuation():
    then = {0x166D: "P", 0x111C9: "P"}  # So since Unicode 12, Mn since 11
    codes = {code for code in ALL
             if age(code) <= 8 and then.get(code, unicode16.category(chr(code))[0]) == "P"}
    codes |= {ord(c) for c in string.punctuation}
    cut = pre_tokenizers.Punctuation()
    same("Punctuation", codes, (code for code in ALL if len(cut.pre_tokenize_str("a" + chr(code))) == 2))
    return ranges(codes)


# Rust's char::is_numeric has Unicode 17.
def numeric():
    codes = [code for code in ALL if unicode17.category(chr(code))[0] == "N"]
    cut = pre_tokenizers.Digits(individual_digits=False)
    same("Digits", codes, (code for code in ALL if len(cut.pre_tokenize_str("a" + chr(code))) == 2))
    return ranges(codes)


# unicode-normalization-alignments has Unicode 9.
def marks():
    then = {0x1CF2: "M", 0x1CF3: "M", 0x111C9: "P"}  # Lo since Unicode 12, Mn since 11
    codes = [code for code in ALL
             if age(code) <= 9 and then.get(code, unicode16.category(chr(code))[0]) == "M"]
    strip = normalizers.StripAccents()
    same("StripAccents", codes, (code for code in ALL if strip.normalize_str("a" + chr(code)) == "a"))
    return ranges(codes)


def newer_marks():
    """Unknown to Unicode 9, and part of ordering, decomposition or composition since."""
    second = set()
    for code in ALL:
        parts = unicode17.decomposition(chr(code)).split()
        if parts and not parts[0].startswith("<"):
            second |= {int(part, 16) for part in parts}
    codes = {code for code in ALL if age(code) > 9 and unicode17.category(chr(code)) != "Cn" and
             (unicode17.combining(chr(code)) or unicode17.decomposition(chr(code)) or code in second)}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normalize = getattr(normalizers, form)().normalize_str
        same(form, (code for code in ALL if code not in codes and
                    unicode16.normalize(form, chr(code)) != chr(code)),
             (code for code in ALL if normalize(chr(code)) != chr(code)))
    return ranges(codes)


# Rust's char::to_lowercase has Unicode 17.
def newer_lower():
    lower = normalizers.Lowercase()
    pairs = [(code, ord(unicode17_lower(code))) for code in ALL if age(code) > 14 and unicode17_lower(code) != chr(code)]
    known = dict(pairs)
    same("Lowercase", [(code, chr(known[code]) if code in known else chr(code).lower()) for code in ALL],
         [(code, lower.normalize_str(chr(code))) for code in ALL])
    table = []
    for code, to in pairs:
        if table and table[-1][1] == code - 1 and table[-1][2] == to - code:
            table[-1][1] = code
        else:
            table.append([code, code, to - code])
    return table


def unicode17_lower(code):
    """Python's own str.lower has Unicode 14. The packages hold no case mappings, so the newer ones are found by name."""
    if unicode17.category(chr(code)) != "Lu":
        return chr(code)
    name = unicode17.name(chr(code))
    special = {0xA7CB: 0x264, 0xA7DC: 0x19B}
    if code in special:
        return chr(special[code])
    try:
        return unicode17.lookup(name.replace("CAPITAL", "SMALL"))
    except KeyError:
        raise SystemExit(f"no small letter of {name}") from None


def body(name, kind, rows, comment):
    cells = ["{" + ", ".join(f"0x{value:X}" if value >= 0 else str(value) for value in row) + "}" for row in rows]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            lines.append(line)
            line = "   "
        line += " " + cell + ","
    lines.append(line)
    return f"// {comment}\nconstexpr {kind} {name}[] = {{\n" + "\n".join(lines).rstrip(",") + "};\n"


def main():
    parts = [
        body("kStandIns", "StandIn", stand_ins(), "Unicode 15 to 16, and what changed its category since 14."),
        body("kPunctuation", "CodePoints", punctuation(), "Unicode 8's P, and all of ASCII's signs."),
        body("kNumeric", "CodePoints", numeric(), "Unicode 17's N."),
        body("kMarksOfUnicode9", "CodePoints", marks(), "Unicode 9's M."),
        body("kNewerMarks", "CodePoints", newer_marks(),
             "Unicode 10 to 17: takes part in canonical ordering, in a decomposition or in a composition."),
        body("kNewerLower", "Lower", newer_lower(), "Unicode 15 to 17: letters and how far away their small one is.")]
    path = os.path.join(ROOT, "engine", "data", "unicode_tables.cc")
    with open(path, "w", encoding="ascii") as out:
        out.write("// Written by tests/oracle/unicode_tables_oracle.py (`make oracle`); do not edit.\n"
                  "// clang-format off\n"
                  '#include "engine/data/text/unicode_tables.h"\n\nnamespace dsj::data {\nnamespace {\n\n'
                  + "\n".join(parts) + "\n}  // namespace\n\n"
                  "std::span<const StandIn> stand_ins() { return kStandIns; }\n"
                  "std::span<const CodePoints> punctuation() { return kPunctuation; }\n"
                  "std::span<const CodePoints> numeric() { return kNumeric; }\n"
                  "std::span<const CodePoints> marks_of_unicode9() { return kMarksOfUnicode9; }\n"
                  "std::span<const CodePoints> newer_marks() { return kNewerMarks; }\n"
                  "std::span<const Lower> newer_lower() { return kNewerLower; }\n\n"
                  "}  // namespace dsj::data\n")
    print(f"  {path}")


if __name__ == "__main__":
    main()
