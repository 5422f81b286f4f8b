"""Padding rows, and sessions of several trajectories: which rows of verl's batch are responses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Rows:
    """The rows to compute on, and the row that each row gets its values from."""

    def __init__(self, index: list[Any], mask: Any, rewards: Any, keys: list[str] | None) -> None:
        is_row = np.ones(len(mask), bool)
        fillers = [uid for uid in set(index) if str(uid).startswith("pad")]
        if fillers:
            # The default trainer fills batches up with rows without a token: they are no responses.
            is_row = ~(np.isin(index, fillers) & (mask.sum(-1) == 0).numpy() & (rewards == 0).all(-1).numpy())
        rows = source = np.flatnonzero(is_row)
        # `{uid}_{session}_{turn}`: of a session's trajectories the last one counts.
        sessions, turns = zip(*(key.rpartition("_")[::2] for key in keys)) if keys else ((), ())
        if len(set(sessions)) < len(sessions) and all(turn.isdigit() for turn in turns):
            last = {sessions[row]: row for row in sorted(rows, key=lambda row: int(turns[row]))}
            source = np.array([last[sessions[row]] for row in rows], dtype=int)
        self.chosen = np.unique(source)
        """Indices of the rows to compute on."""
        self.source = np.full(len(mask), -1)
        """For each row the place in `chosen` of the row whose values it gets, -1 for a padding row."""
        self.source[rows] = np.searchsorted(self.chosen, source)
        self.is_whole = len(self.chosen) == len(self.source)
        self.is_shared = len(self.chosen) < len(rows)
        """Whether a row gets the values of another row."""

    def select(self, tensor: Any) -> Any:
        """The chosen rows of a tensor."""
        return tensor if self.is_whole else tensor[torch.from_numpy(self.chosen)]

    def spread(self, values: Any, mask: Any) -> Any:
        """The values of all rows, [B, T]: 0 for a padding row; another trajectory of a session has the value of its last."""
        if self.is_whole:
            return values
        chosen, whole = torch.from_numpy(self.chosen), torch.zeros(mask.shape, dtype=values.dtype)
        if self.is_shared:
            # The value of the first token that counts.
            first = values[torch.arange(len(values)), (mask[chosen] != 0).int().argmax(1)]
            whole = self.spread_responses(first).unsqueeze(-1) * (mask != 0)
        whole[chosen] = values
        return whole

    def spread_responses(self, values: Any) -> Any:
        """As `spread`, for one value per response, [B]."""
        return torch.cat([values, values.new_zeros(1)])[torch.from_numpy(self.source)]
