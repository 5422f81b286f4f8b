"""ROLL: returns, GAE, whitening."""

from .shared import advantage, gae, named, replaced, returns_of

ROLL = "roll.utils.functionals"


@replaced(f"{ROLL}:compute_reinforce_return")
@named
def reinforce(x):
    a = returns_of(x)
    return a, a


replaced(f"{ROLL}:compute_gae_advantage_return")(gae)


@replaced(f"{ROLL}:masked_whiten")
@named
def whitened(x):
    """REINFORCE++ without a discount whitens the tokens' rewards."""
    if not x.shift_mean:
        return NotImplemented
    given = {"kl_beta": 0.0, "gamma": 0.0}
    return advantage("reinforce_pp", x.mask.to(x.values.dtype), None, given, token_reward=x.values)[0]
