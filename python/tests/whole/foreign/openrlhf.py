"""OpenRLHF: aggregation of losses."""

from .shared import mean, named, replaced


@replaced("_openrlhf_loss_test.loss:aggregate_loss")
@named
def aggregated(x):
    mask = x.loss_mask if hasattr(x, "loss_mask") else x.mask
    value = mean(x.loss, mask, aggregate="token" if x.token_level_loss else "response")
    count, whole = (mask.sum(), x.batch_num_tokens) if x.token_level_loss else ((mask.sum(-1) > 0).sum(), x.global_batch_size)
    return value if whole is None else value * float(count) / float(whole) * x.dp_size
