#!/usr/bin/env python3
"""`dsj chat` against `dsj generate`, which completes each prompt from its beginning, and what sampling depends on.

Usage: chat_check.py BIN GTEST_REPORT. The models have random weights: what they say is noise, but always the same noise.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, expect  # noqa: E402

TEMPLATE = """{% for m in messages %}<{{ m.role }}> {{ m.content }}
{% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"""
TOKENS = "12"


class Check:
    def __init__(self, bin_, room):
        self.bin, self.room = bin_, room
        self.plain = os.path.join(room, "quickstart/model")
        self.run("dsj-make-quickstart", "--output", os.path.dirname(self.plain), "--size", "tiny", "--rows", "20")
        self.model = os.path.join(room, "model")
        tokenizer = [os.path.join(self.plain, name) for name in ("tokenizer.json", "tokenizer_config.json")]
        with open(os.path.join(self.plain, "generation_config.json"), encoding="utf-8") as file:
            end = json.load(file)["pad_token_id"]
        self.run("dsj-make-model", "--output", self.model, "--vocabulary", "448", "--end-of-text", str(end), "--hidden", "64", "--positions", "4096", "--untied",
                 "--tokenizer", *tokenizer)
        with open(os.path.join(self.model, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(TEMPLATE)

    def run(self, program, *words, code=0, said=""):
        done = subprocess.run([os.path.join(self.bin, program), *words], input=said.encode(), capture_output=True, check=False)
        expect(done.returncode == code, f"{program} {words}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        self.stderr = done.stderr.decode()
        return done.stdout.decode(errors="replace")

    def chat(self, lines, *words, model=None):
        """The rows that /save wrote at the end, and after which lines it was said."""
        path = os.path.join(self.room, "saved.jsonl")
        if os.path.exists(path):
            os.remove(path)
        said = "".join(line + "\n" for line in [*lines, f"/save {path}"])
        self.run("dsj", "chat", model or self.model, "--max-new-tokens", TOKENS, *words, said=said)
        with open(path, encoding="utf-8") as file:
            return [json.loads(line)["messages"] for line in file]

    def generated(self, messages, *words, model=None):
        done = self.run("dsj", "generate", "--model", model or self.model, "--data", "-", "--max-new-tokens", TOKENS, "-o", "json", *words,
                        said=json.dumps({"messages": messages}) + "\n")
        return json.loads(done.splitlines()[0])["completion"]

    def answers_as_generate_does(self):
        conversation, = self.chat(["Add 3 and 4.", "", "and\\", "5?", "thanks"], "--system", "Be short.")
        expect([turn["role"] for turn in conversation] == ["system"] + ["user", "assistant"] * 3, conversation)
        expect(conversation[3]["content"] == "and\n5?", conversation)
        for i, turn in enumerate(conversation):
            if turn["role"] == "assistant":
                alone = self.generated(conversation[:i])
                expect(turn["content"] == alone, f"turn {i}: {turn['content']!r}, by generate {alone!r}")
        expect(len({turn["content"] for turn in conversation if turn["role"] == "assistant"}) == 3, conversation)

    def forgets(self):
        first, = self.chat(["one", "two"])
        expect(self.chat(["one", "other", "/undo", "two"])[0] == first, "/undo")
        expect(self.chat(["zero", "/clear", "one", "two"])[0] == first, "/clear")
        system, = self.chat(["zero", "/system Be short.", "one", "/clear", "two"])
        expect([turn["role"] for turn in system] == ["system", "user", "assistant"], system)
        expect(self.chat(["zero", "/system Be short.", "/system", "one", "two"])[0] == first, "/system without a text")
        self.chat(["one", "/unknown", "two"])
        expect("/unknown is not a command" in self.stderr, self.stderr)

    def without_a_template(self):
        conversation, = self.chat(["Add 3 and 4.", "Add 5 and 6."], model=self.plain)
        expect("no chat template" in self.stderr, self.stderr)
        for asked, answer in ((conversation[0], conversation[1]), (conversation[2], conversation[3])):
            alone = self.run("dsj", "generate", "--model", self.plain, "--prompt", asked["content"], "--max-new-tokens", TOKENS, "-o", "json")
            expect(json.loads(alone.splitlines()[0])["completion"] == answer["content"], alone)
        self.run("dsj", "chat", self.plain, "--system", "Be short.", code=2)
        expect("no chat template" in self.stderr, self.stderr)

    def samples(self):
        greedy, = self.chat(["one"])
        drawn = {seed: self.chat(["one"], "--temperature", "3", "--seed", seed)[0][1]["content"] for seed in ("1", "2", "1")}
        expect(drawn["1"] != drawn["2"] and greedy[1]["content"] not in drawn.values(), drawn)
        expect(self.chat(["one"], "--temperature", "3", "--seed", "1")[0][1]["content"] == drawn["1"], "the same seed")
        expect(self.chat(["one"], "--temperature", "3", "--top-k", "1")[0] == greedy, "one token left")
        rows = [[{"role": "user", "content": f"question {i}"}] for i in range(5)]
        said = "".join(json.dumps({"messages": row}) + "\n" for row in rows)
        both = [self.run("dsj", "generate", "--model", self.model, "--data", "-", "--max-new-tokens", TOKENS, "--temperature", "2", "--batch", batch,
                         "-o", "json", said=said) for batch in ("1", "3")]
        expect(both[0] == both[1], f"the batch changes what is drawn: {both}")

    def reads_a_pipe(self):
        """As of `--data <(command)`, which can be read once only."""
        rows = "".join(json.dumps({"messages": [{"role": "user", "content": text}]}) + "\n" for text in ("one", "two"))
        pipe = os.path.join(self.room, "pipe")
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: open(pipe, "w", encoding="utf-8").write(rows), daemon=True)
        writer.start()
        words = ("--max-new-tokens", TOKENS, "-o", "json")
        piped = self.run("dsj", "generate", "--model", self.model, "--data", pipe, *words)
        expect(piped == self.run("dsj", "generate", "--model", self.model, "--data", "-", *words, said=rows), piped)

    def follows_the_models_own_settings(self):
        greedy, = self.chat(["one"])
        own = os.path.join(self.room, "own")
        shutil.copytree(self.model, own)
        with open(os.path.join(own, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump({"do_sample": True, "temperature": 3.0}, file)
        drawn, = self.chat(["one"], model=own)
        expect(drawn != greedy, drawn)
        expect(self.chat(["one"], "--temperature", "3", "--top-k", "50")[0] == drawn, "transformers keeps 50 tokens where the file says nothing")
        expect(self.chat(["one"], "--temperature", "0", model=own)[0] == greedy, "an option overrides the file")
        expect(self.generated(greedy[:1], model=own) == greedy[1]["content"], "generate takes the best token")

    def ctrl_c(self):
        """It stops the answer, then the program."""
        command = [os.path.join(self.bin, "dsj"), "chat", self.model, "--max-new-tokens", "4000"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as running:
            try:
                running.stdin.write(b"one\n")
                running.stdin.flush()
                said = running.stdout.read1(64)
                os.killpg(running.pid, signal.SIGINT)
                running.stdin.write(b"/help\n")
                running.stdin.flush()
                while b"is no command." not in said:  # behind the answer, which may hold anything
                    more = running.stdout.read1(4096)
                    expect(more, "the program ended with the answer")
                    said += more
                expect(len(said) < 10_000, "the whole answer came")
                os.killpg(running.pid, signal.SIGINT)
                code = running.wait(60)
                expect(code == 130, code)
            finally:
                running.kill()

    def a_named_template_is_the_exported_models(self):
        rows, out = os.path.join(self.room, "rows.jsonl"), os.path.join(self.room, "trained")
        messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
        with open(rows, "w", encoding="utf-8") as file:
            file.write((json.dumps({"messages": messages}) + "\n") * 2)
        self.run("dsj", "run", "--model_name_or_path", self.plain, "--data_path", rows, "--output_dir", out, "--max_steps", "1",
                 "--chat_template", TEMPLATE, "--deepspeed", json.dumps({"train_micro_batch_size_per_gpu": 1}))
        model = os.path.join(out, "model")
        with open(os.path.join(model, "chat_template.jinja"), encoding="utf-8") as file:
            expect(file.read() == TEMPLATE, model)
        conversation, = self.chat(["one"], model=model)
        expect(conversation[1]["content"] == self.generated(messages[:1], model=model), conversation)

    def closed_and_full_streams(self):
        """A closed stream is an empty one, never the next file that is opened; output that is lost is an error."""
        dsj, rows = os.path.join(self.bin, "dsj"), os.path.join(self.room, "one.jsonl")
        with open(rows, "w", encoding="utf-8") as file:
            file.write(json.dumps({"instruction": "one", "output": "two"}) + "\n")
        for words, streams, code in (
            (["chat", self.model], "<&-", 0),
            (["generate", "--model", self.model, "--data", rows, "--max-new-tokens", "2"], "<&- >&- 2>&-", 0),
            (["generate", "--model", self.model, "--data", rows, "--max-new-tokens", "2"], "2>&1 >/dev/full", 3),
            (["completion", "bash"], "2>&1 >/dev/full", 3),
            (["--version"], "2>&1 >/dev/full", 3),
            (["--help"], "2>&1 >/dev/full", 3),
        ):
            done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", dsj, *words], capture_output=True, text=True, timeout=120, check=False)
            expect(done.returncode == code, f"{words} {streams}: {done.returncode} {done.stdout} {done.stderr}")
            expect(code == 0 or "standard output: " in done.stdout, f"{words}: {done.stdout}")

    def bad_words(self):
        for words, named in ((["--temperature", "warm"], "--temperature"), (["--top-p", "0"], "--top-p"), (["--top-k", "-1"], "--top-k"),
                             (["--chat-template", "/nowhere.jinja"], "/nowhere.jinja")):
            self.run("dsj", "chat", self.model, *words, code=2)
            expect(named in self.stderr, self.stderr)
        self.run("dsj", "chat", os.path.join(self.room, "nothing"), code=2)
        expect("no such directory" in self.stderr, self.stderr)
        expect("dsj chat" in self.run("dsj-train", "--help"), "dsj-train --help")


def main():
    report = Report("Chat", sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="dsj-chat-") as room:
        check = Check(os.path.abspath(sys.argv[1]), room)
        for case in (check.answers_as_generate_does, check.forgets, check.without_a_template, check.samples, check.reads_a_pipe, check.follows_the_models_own_settings,
                     check.ctrl_c, check.a_named_template_is_the_exported_models, check.closed_and_full_streams, check.bad_words):
            report.run(case.__name__, case)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
