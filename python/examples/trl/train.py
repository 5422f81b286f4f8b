"""GRPO with a recipe, in TRL, on a small model with random weights; it takes half a minute on an idle CPU.

    pip install ./python trl==1.16.0
    python python/examples/trl/train.py

Edit `length.rhai` while it runs: the next generation uses the edit, and `advlab/serial` in the log (a mean of 20 steps) goes up.
"""

from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from advlab.trl import GRPOTrainer

WORDS = ["<pad>", "<eos>", *"abcdefghijklmnop"]


def count_a(completions, **_):
    """Returns the number of letters `a` in each completion."""
    return [float(text.count("a")) for text in completions]


def main():
    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(WORDS), num_key_value_heads=1, eos_token_id=1, pad_token_id=0, bos_token_id=0, **sizes)
    trainer = GRPOTrainer(
        recipe=Path(__file__).with_name("length.rhai"),
        recipe_params={"limit": 8},
        model=Qwen2ForCausalLM(config),
        reward_funcs=[count_a],
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": ["a b", "c d", "e f", "g h"] * 16}),
        args=GRPOConfig(
            output_dir="runs/trl",
            max_steps=300,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=16,
            learning_rate=3e-3,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main()
