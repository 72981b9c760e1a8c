"""What may be put between an environment of others and the agent: settings."""

from dataclasses import dataclass

from clew.errors import (
    UserError,
    require_at_least,
    require_fraction,
    require_rate,
)


@dataclass(frozen=True)
class WrapperConfig:
    """Settings of the wrappers around environments of others; by default there are none.

    In this order: frame_skip, time_limit and video around each environment; then, for all of them
    together, keep, normalise_observations, previous on observations, and normalise_rewards,
    reward_scale, reward_clip on rewards. The "return" and "length" in a step's metrics are those
    of the environment's own rewards, and of the agent's steps.
    """

    frame_skip: int = 1
    """Times that every action is taken; the rewards are summed, and an end stops it."""
    time_limit: int | None = None
    """Truncate episodes after so many of the agent's steps, besides what the environment does by
    itself; None for no further limit."""
    keep: tuple[int, ...] | None = None
    """Indices of the entries of a vector observation that the agent sees, in this order; None for
    all. (0, 2) hides CartPole's velocities."""
    normalise_observations: bool = False
    """Shift and scale every entry of float observations to mean 0 and deviation 1 over all
    observations so far, of all environments. Frozen in evaluation; kept in checkpoints."""
    observation_clip: float = 10.0
    """Normalised observations beyond this many deviations are cut off."""
    normalise_rewards: bool = False
    """Divide rewards by the root mean square of the discounted return so far, R_t = r_t +
    reward_gamma R_{t-1}. Frozen in evaluation; kept in checkpoints."""
    reward_gamma: float = 0.99
    """Discount of the return that normalise_rewards divides by; the agent's, usually."""
    reward_scale: float = 1.0
    """Multiply rewards by this, after normalise_rewards."""
    reward_clip: float | None = None
    """Cut rewards off at plus and minus this, last of all; None for no limit."""
    previous: bool = False
    """Show the agent its previous action and reward: the observation becomes a dict with
    "observation" (or the environment's own names), "previous_action" (one-hot; a Box as it is)
    and "previous_reward" (as the agent learns from it); both 0 at an episode's start."""
    video_every: int = 0
    """Film every n-th episode of the first environment as a GIF; 0 for none."""
    video_folder: str = "videos"
    """Where the films go."""

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
        require_at_least("frame_skip", self.frame_skip, 1)
        require_at_least("video_every", self.video_every, 0)
        if self.time_limit is not None:
            require_at_least("time_limit", self.time_limit, 1)
        require_rate("observation_clip", self.observation_clip, positive=True)
        require_rate("reward_scale", self.reward_scale, positive=True)
        require_fraction("reward_gamma", self.reward_gamma)
        if self.reward_clip is not None:
            require_rate("reward_clip", self.reward_clip, positive=True)
        if self.keep is not None:
            for index in self.keep:
                require_at_least("an index of keep", index, 0)
            if not self.keep or len(set(self.keep)) < len(self.keep):
                raise UserError(f"keep must name different entries, at least one, got {self.keep}")
        if self.video_every and not self.video_folder:
            raise UserError("video_every needs a video_folder, it is empty")

    def require_no_single(self, name: str) -> None:
        """Refuses what goes around single environments, where they came together already.

        Raises:
            UserError: frame_skip, time_limit or video_every is set.
        """
        wanted = {"frame_skip": self.frame_skip > 1, "time_limit": self.time_limit is not None}
        wanted["video_every"] = self.video_every > 0
        for setting, asked in wanted.items():
            if asked:
                raise UserError(
                    f"{setting} goes around single environments, and {name} is a vector "
                    "environment: build it in there"
                )
