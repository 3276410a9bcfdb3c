"""Seeded texts for the tokenizer fixtures. tests/engine/data/text_generator.h makes the same ones."""

MASK = (1 << 64) - 1


class Lcg:
    def __init__(self, seed):
        self.state = (seed * 0x9E3779B97F4A7C15 + 1) & MASK

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % limit

    def pick(self, items):
        return items[self.below(len(items))]


SPACES = [" ", " ", " ", "\n", "\n", "\r", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e",
          "\u200b", "\u2009", "\x0b", "\x0c", "\ufeff", "\u1680", "\x1c", "\u202f"]
EMOJI = ["\U0001F600", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA",
         "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001F9D1\u200d\U0001F4BB", "\U0001F3F4\u200d\u2620\ufe0f", "\u263a"]
CONTRACTIONS = ["'s", "'S", "'\u017f", "'re", "'RE", "'ll", "'Ll", "\u2019s", "'d", "'ve", "'M", "'t", "'x", "''s"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>", "<|extra_7|>",
            "<|extra_204|>", "<|im_", "<|", "[W]", "[W]x", "x[W]", "[L]", " [L]", "[R] ", "[R]", "[N]", "<pad>",
            "caf\u00e9", "cafe\u0301", "CAFE\u0301", "<tool>", "<tool>s", "  [L]\n[R]  "]
PUNCTUATION = "!?.,;:-_()[]{}#@&*/\\\"'`~^%$+=<>|"
WORDS = ["the", "of", "and", "to", "in", "is", "that", "for", "model", "training", "response", "Instruction", "input",
         "output", "write", "a", "data", "loss", "don't", "we're", "Below", "describes", "task", "appropriately"]
BLOCKS = [(0xC0, 23), (0x3B1, 17), (0x410, 64), (0x5D0, 27), (0x621, 26), (0x904, 54), (0xE01, 58), (0x3041, 86),
          (0x30A1, 90), (0xAC00, 11172), (0x10D0, 43), (0x1E00, 256), (0x20000, 42720), (0x660, 10), (0x2460, 60),
          (0x300, 112), (0x591, 45), (0x64B, 21), (0x1100, 19), (0x1161, 21), (0x11A8, 27), (0x1F100, 64), (0xFF01, 94)]


def make_text(seed, index, ranges):
    """ranges: [(first, count)] of the assigned code points."""
    r = Lcg(seed * 1000003 + index)
    total = sum(count for _, count in ranges)
    out = []
    for _ in range(1 + r.below(12)):
        kind = r.below(16)
        if kind == 0:
            for _ in range(1 + r.below(3)):
                first, count = r.pick(ranges)
                out.append(chr(first + r.below(count)))
        elif kind == 1:
            at = r.below(total)
            for first, count in ranges:
                if at < count:
                    out.append(chr(first + at))
                    break
                at -= count
        elif kind == 2:
            upper = r.below(4) == 0
            word = "".join(chr(97 + r.below(26)) for _ in range(1 + r.below(9)))
            out.append(word.upper() if upper else word)
        elif kind == 3:
            out.append(" " + r.pick(WORDS))
        elif kind == 4:
            for _ in range(1 + r.below(5)):
                out.append(r.pick(SPACES))
        elif kind == 5:
            out.append(chr(97 + r.below(26)))
            for _ in range(1 + r.below(4)):
                out.append(chr(0x300 + r.below(112)))
        elif kind == 6:
            out.append(r.pick(EMOJI))
        elif kind == 7:
            for _ in range(1 + r.below(8)):
                out.append(chr(48 + r.below(10)))
        elif kind == 8:
            out.append(r.pick(WORDS))
            out.append(r.pick(CONTRACTIONS))
        elif kind == 9:
            out.append(r.pick(SPECIALS))
        elif kind == 10:
            for _ in range(1 + r.below(6)):
                out.append(chr(0x4E00 + r.below(20902)))
        elif kind == 11:
            out.append(chr(0x1100 + r.below(19)))
            out.append(chr(0x1161 + r.below(21)))
            if r.below(2) == 0:
                out.append(chr(0x11A8 + r.below(27)))
        elif kind == 12:
            for _ in range(1 + r.below(6)):
                out.append(r.pick(PUNCTUATION))
        elif kind == 13:
            first, count = r.pick(BLOCKS)
            for _ in range(1 + r.below(6)):
                out.append(chr(first + r.below(count)))
        elif kind == 14:
            out.append(" ")
        else:
            out.append(r.pick(WORDS) + " ")
    return "".join(out)


def sweep_text(code_point):
    """One code point beside letters, digits, spaces and added tokens."""
    c = chr(code_point)
    return f"a{c}b {c}{c} 1{c}\n[W]{c}[W] [L]{c}e\u0301{c}\u0301 {c}'s"


def hash_numbers(numbers, state=0xCBF29CE484222325):
    for number in numbers:
        state = ((state ^ number) * 0x100000001B3) & MASK
    return state


def hash_lists(lists):
    """Lists in order; each ends with a mark, so that where one ends counts too."""
    state = 0xCBF29CE484222325
    for numbers in lists:
        state = hash_numbers(numbers, state)
        state = hash_numbers([0xFFFFFFFF], state)
    return format(state, "016x")
