#!/usr/bin/env python3
"""Makes a model in a Hugging Face folder, trains it for three steps on questions in text (the run is killed and resumed),
exports it, and opens it with transformers, whose log-probs may differ from advlab's by at most 1e-5.

    python -m venv .peers && .peers/bin/pip install torch==2.11.0 transformers==5.10.4
    cargo build --features torch --example transformer && cargo build --features torch
    .peers/bin/python examples/peers/folder.py QUESTIONS.jsonl

The file has questions and answers as GSM8K has them (`question` or `prompt`, `answer` or `solution`). The model is a Qwen2
with random weights, and its tokenizer is a byte-level BPE that is trained on the file's text.
"""
import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
task = "math"
policy = "transformer"
recipe = "grpo"
steps = 3
rollout_batch_size = 4
group_size = 4
minibatches = 2
lr = 0.001
eval_prompts = 4
eval_samples = 1
checkpoint_every = 1
out = "{out}"
[math]
data = "{data}"
[transformer]
model = "{model}"
device = "cpu"
max_new_tokens = 48
stop_strings = ["\\n\\n"]
"""


def make_folder(folder, texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = "<|im_end|>"
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=["<|endoftext|>", "<|im_start|>", end],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token="<|endoftext|>")
    fast.chat_template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    fast.save_pretrained(folder)
    config = Qwen2Config(vocab_size=1024, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, tie_word_embeddings=True, eos_token_id=fast.eos_token_id, bos_token_id=None)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    # Larger weights make the distribution far enough from uniform to reveal an error.
    for weight in model.parameters():
        weight.data *= 4 if weight.dim() == 2 else 1
    model.save_pretrained(folder)


def train_killed(program, config, run):
    """Kills a run once it has done a step, and returns how many steps it had done by then."""
    metrics = run / "metrics.jsonl"
    child = subprocess.Popen([program, "train", config], stdout=subprocess.DEVNULL)
    while not (metrics.exists() and metrics.read_bytes().count(b"\n")):
        if child.poll() is not None:
            raise SystemExit(f"the run ended by itself, with {child.returncode}")
        time.sleep(0.001)
    child.kill()
    child.wait()
    return metrics.read_bytes().count(b"\n")


def logp_of(example, folder, prompts, responses):
    """The log-probs that advlab computes for responses, one response to each prompt."""
    work = {"threads": 1, "prompts": prompts, "group_size": 1, "max_tokens": 1, "stops": [], "responses": responses,
            "tokens_per_forward": 4096, "device": "cpu"}
    Path(folder, "work.json").write_text(json.dumps(work))
    answer = subprocess.run([example, folder], input="score\n", capture_output=True, text=True, check=True)
    return torch.tensor(json.loads(answer.stdout)["logp"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/debug")
    options = parser.parse_args()
    program, example = options.programs / "advlab", options.programs / "examples/transformer"
    rows = [json.loads(line) for line in options.questions.read_text().splitlines()]
    question, answer = (next(n for n in names if n in rows[0])
                        for names in [("question", "prompt"), ("answer", "solution")])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model, run, out = folder / "model", folder / "run", folder / "exported"
        make_folder(model, [row[question] for row in rows] + [str(row[answer]) for row in rows])
        config = folder / "config.toml"
        config.write_text(CONFIG.format(model=model, data=options.questions.resolve(), out=run))
        print(f"killed after {train_killed(program, config, run)} of 3 steps")
        subprocess.run([program, "train", "--resume", run], check=True)
        subprocess.run([program, "replay", run], check=True)
        subprocess.run([program, "export", run, out], check=True)

        theirs = AutoModelForCausalLM.from_pretrained(out)
        tokenizer = AutoTokenizer.from_pretrained(out)
        state = load_file(run / "checkpoints/000003/policy.safetensors")
        before = AutoModelForCausalLM.from_pretrained(model).state_dict()
        for name, weight in theirs.named_parameters():
            assert torch.equal(weight, state[name]), name
        assert any(not torch.equal(weight, before[name]) for name, weight in theirs.named_parameters()), "nothing was learned"
        texts = [row[question] for row in rows[:8]]
        prompts = [tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
                   for text in texts]
        responses = [tokenizer(str(row[answer])).input_ids[:32] for row in rows[:8]]
        expected = []
        with torch.no_grad():
            for prompt, response in zip(prompts, responses):
                logits = theirs(torch.tensor([prompt + response])).logits[0, len(prompt) - 1:-1]
                expected.append(logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0])
        apart = (logp_of(example, out, prompts, responses) - torch.cat(expected)).abs().max()
        print(f"transformers opens it; weights are the run's, log-probs at most {apart:.1e} apart")
        assert apart < 1e-5


if __name__ == "__main__":
    main()
