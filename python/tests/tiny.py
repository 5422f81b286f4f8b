"""A policy of a few thousand random weights, its tokenizer, and rewards: for runs of trainers."""

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WORDS = ["<pad>", "<eos>", *"abcdefghijklmnop"]


def tokenizer():
    made = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", padding_side="left")
    made.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return made


def model(seed=0):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    made = Qwen2Config(vocab_size=len(WORDS), num_key_value_heads=1, eos_token_id=1, pad_token_id=0, bos_token_id=0, **sizes)
    return Qwen2ForCausalLM(made)


def many_a(completions, **_):
    return [float(text.count("a")) for text in completions]


@torch.no_grad()
def sample(policy, prompt, seed, length=6):
    """A response to a prompt, and its log-probs: the same for the same policy, prompt and seed."""
    generator = torch.Generator().manual_seed(seed)
    ids, found = list(prompt), []
    while len(found) < length and (not found or ids[-1] != 1):
        logp = policy(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)
        ids.append(int(torch.multinomial(logp.exp(), 1, generator=generator)))
        found.append(float(logp[ids[-1]]))
    return ids[len(prompt) :], found


def logps(policy, prompt, response, temperature=1.0):
    """The log-probs of a response's tokens."""
    logits = policy(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(1, response[:, None])[:, 0]


def mixed_by_hand(share, reward, uid, mask, gain):
    """The advantage of docs/mixing.md's recipe."""
    groups = [np.flatnonzero(uid == name) for name in uid]
    grpo = [(reward[row] - reward[peers].mean()) / (reward[peers].std() + 1e-6) for row, peers in enumerate(groups)]
    return ((1 - share) * torch.stack(grpo)[:, None] + share * gain) * mask
