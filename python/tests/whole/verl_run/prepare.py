"""Writes what a run needs into FOLDER: a Llama of 2 layers, its tokenizer, 64 sums to learn from, 8 to validate on.

Usage: prepare.py FOLDER
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
words = Tokenizer(models.WordLevel(unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator(
    [f"{a} + {b} = {a + b}" for a in range(20) for b in range(20)],
    trainers.WordLevelTrainer(special_tokens=["<unk>", "<pad>", "<eos>", "<bos>"]),
)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", padding_side="left"
)
tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=1, eos_token_id=2, bos_token_id=3,
)  # fmt: skip
LlamaForCausalLM(config).save_pretrained(folder / "model")
tokenizer.save_pretrained(folder / "model")
rows = [
    {"data_source": "even", "prompt": [{"role": "user", "content": f"{a} + {b} ="}], "ability": "math",
     "reward_model": {"style": "rule", "ground_truth": str(a + b)}, "extra_info": {"index": 8 * a + b}}
    for a in range(8) for b in range(8)
]  # fmt: skip
pd.DataFrame(rows).to_parquet(folder / "train.parquet")
pd.DataFrame(rows[:8]).to_parquet(folder / "val.parquet")
