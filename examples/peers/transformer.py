#!/usr/bin/env python3
"""Times advlab's transformer, and transformers' `generate` and plain PyTorch with the same weights, on the CPU or a GPU.

    python -m venv .peers && .peers/bin/pip install torch==2.11.0 transformers==5.10.4
    cargo build --release --features torch --example transformer
    .peers/bin/python examples/peers/transformer.py

Both programs have the same number of threads and run alternately; times are the least of all runs. Sampling is timed as training
uses it: the responses, and then the log-probs of their tokens. An update is forward, backward, clipping and AdamW. Both programs
compute at most `--tokens-per-forward` tokens at a time; PyTorch computes the log-probs of these tokens from all logits at once.
"""
import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

ROOT = Path(__file__).resolve().parents[2]


def make_model(layers, width):
    """A model with 3.5 million weights at 4 layers of width 256; its logits differ enough that draws differ."""
    config = Qwen2Config(vocab_size=2048, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
                         num_attention_heads=width // 32, num_key_value_heads=width // 64, max_position_embeddings=4096,
                         tie_word_embeddings=True, eos_token_id=None, bos_token_id=None, pad_token_id=0)
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config).eval()


class Peer:
    """The same work in Python."""

    def __init__(self, model, work):
        device = work["device"]
        self.model, self.work = model.to(device), work
        self.prompts = torch.tensor(work["prompts"], device=device)
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.responses = torch.tensor(work["responses"], device=device)
        count = self.responses.numel()
        self.slope = (torch.arange(count, device=device).double().sin() / count).float().view_as(self.responses)

    def passes(self):
        """The ranges of responses; each range is computed in one pass."""
        each = max(1, self.work["tokens_per_forward"] // (self.prompts.shape[1] + self.responses.shape[1]))
        return [slice(first, first + each) for first in range(0, len(self.responses), each)]

    def logp(self, responses, part):
        """The log-probs of the tokens of a part of the responses; each response has its own copy of its prompt."""
        width = self.prompts.shape[1]
        prompts = self.prompts.repeat_interleave(len(responses) // len(self.prompts), 0)
        rows = torch.cat([prompts, responses], 1)[part]
        logits = self.model(rows[:, :-1]).logits[:, width - 1:]
        return logits.log_softmax(-1).gather(2, responses[part][:, :, None])[:, :, 0]

    def scored(self, responses):
        with torch.no_grad():
            return torch.cat([self.logp(responses, part) for part in self.passes()])

    def generate(self):
        with torch.no_grad():
            rows = self.model.generate(
                self.prompts, do_sample=True, top_k=0, temperature=1.0, num_return_sequences=self.work["group_size"],
                min_new_tokens=self.work["max_tokens"], max_new_tokens=self.work["max_tokens"],
                attention_mask=torch.ones_like(self.prompts))
        return rows[:, self.prompts.shape[1]:]

    def sample(self):
        self.scored(self.generate())

    def score(self):
        return self.scored(self.responses)

    def update(self):
        self.optimizer.zero_grad()
        for part in self.passes():
            (self.logp(self.responses, part) * self.slope[part]).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


class Ours:
    """advlab's process, which does one piece of work for each line of input."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"advlab ended at `{line}`")
        return json.loads(answer)

    def resident(self):
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096 / 1e6

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(function):
    started = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target/release/examples/transformer"))
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="the model's width, a multiple of 64")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group-size", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--tokens-per-forward", type=int, default=1 << 14)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="then run so many steps, and print advlab's memory")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randint(1, 2048, shape, generator=generator).tolist()
    model = make_model(options.layers, options.width)
    print(f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.1f} million weights on {options.device}, float32")
    work = {
        "device": options.device,
        "threads": options.threads,
        "prompts": draw(options.prompts, options.prompt_tokens),
        "group_size": options.group_size,
        "max_tokens": options.tokens,
        # There are so many stop tokens that one is drawn after about half of a response's tokens, on average.
        "stops": list(range(0, 2048, max(1, options.tokens // 2))),
        "responses": draw(options.prompts * options.group_size, options.tokens),
        "tokens_per_forward": options.tokens_per_forward,
    }
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        Path(folder, "work.json").write_text(json.dumps(work))
        ours, peer = Ours(options.program, folder), Peer(model, work)
        compare(ours, peer, options)
        steps(ours, options.steps)
        ours.close()


def compare(ours, peer, options):
    found = torch.tensor(ours("score")["logp"]).view_as(peer.responses.cpu())
    print(f"log-probs are up to {(found - peer.score().cpu()).abs().max():.1e} apart")
    peers = {"sample": peer.sample, "score": peer.score, "update": peer.update}
    least, theirs = {}, {}
    lines = ["sample", "score", "update"] + (["sample apart"] if options.group_size > 1 else [])
    for _ in range(options.turns):
        for line in lines:
            least[line] = min(least.get(line, 1e9), ours(line)["seconds"])
            if line in peers:
                theirs[line] = min(theirs.get(line, 1e9), timed(peers[line]))
    # The time of the responses alone, without the log-probs that are computed after them.
    for times in (least, theirs):
        times["responses"] = times["sample"] - times["score"]
    for line in ["responses", *lines]:
        told = lambda seconds: f"{seconds:7.3f} s {peer.responses.numel() / seconds:9.0f} tokens/s"
        beside = f"  Python {told(theirs[line])}  ratio {least[line] / theirs[line]:.2f}" if line in theirs else ""
        print(f"{line:14} {told(least[line])}{beside}")
    print("Responses alone, with stop tokens; rows that have ended are dropped:")
    ours("stops")
    for _ in range(options.turns):
        seconds, answer = ours("sample")["seconds"], ours("score sampled")
        least["stops"] = min(least.get("stops", 1e9), seconds - answer["seconds"])
    ours("no stops")
    print(f"{'with stops':14} {least['stops']:7.3f} s  for {answer['tokens']} tokens of {peer.responses.numel()}")


def steps(ours, count):
    for step in range(1, count + 1):
        ours("sample")
        ours("update")
        if step % max(1, count // 10) == 0:
            print(f"step {step:4}: {ours.resident():7.1f} MB resident")


if __name__ == "__main__":
    main()
