"""slime: losses, GAE, returns."""

from .shared import clipped, each, gae, replaced, returns

SLIME = "slime.utils.ppo_utils"
replaced(f"{SLIME}:chunked_gae")(gae)
replaced(f"{SLIME}:chunked_discounted_returns")(returns)
replaced(f"{SLIME}:compute_policy_loss")(clipped)


@replaced(f"{SLIME}:compute_cispo_loss")
def cispo(own, ppo_kl, log_probs, advantages, eps_clip, eps_clip_high):
    given = {"clip_low": eps_clip, "clip_high": eps_clip_high}
    share = own(ppo_kl, log_probs, advantages, eps_clip, eps_clip_high)[1]
    return each("cispo", given, logp=log_probs, old_logp=(log_probs + ppo_kl).detach(), advantage=advantages), share
