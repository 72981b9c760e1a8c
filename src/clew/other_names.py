"""Other names of settings: what earlier versions called them, and what other libraries do.

The latter are hints for who comes from Stable-Baselines3 or CleanRL.
"""

from collections.abc import Sequence

FORMER = {"--influence=ablation": "--influence=occlusion"}
"""Values of options under their former names."""

OTHER_NAMES = {
    "algo": "algorithm",
    "anneal_lr": "schedule",
    "batch_size": "minibatches",
    "buffer_size": "replay_steps",
    "capture_video": "video_every",
    "clip_coef": "clip_ratio",
    "clip_obs": "observation_clip",
    "clip_range": "clip_ratio",
    "clip_range_vf": "value_clip",
    "clip_reward": "reward_clip",
    "clip_vloss": "value_clip",
    "end_e": "epsilon_end",
    "ent_coef": "entropy_cost",
    "env_id": "env",
    "eval_freq": "log_every",
    "exp_name": "name",
    "exploration_final_eps": "epsilon_end",
    "exploration_initial_eps": "epsilon_start",
    "gae_lambda": "lam",
    "hidden_size": "memory_options",
    "log_dir": "run_dir",
    "lr": "learning_rate",
    "lstm_hidden_size": "memory_options",
    "max_episode_steps": "time_limit",
    "n_envs": "num_envs",
    "n_epochs": "epochs",
    "n_eval_episodes": "episodes",
    "n_lstm_layers": "memory_options",
    "n_seeds": "seeds",
    "n_steps": "rollout_length",
    "n_timesteps": "steps",
    "norm_adv": "advantage_normalisation",
    "norm_obs": "normalise_observations",
    "norm_reward": "normalise_rewards",
    "normalize_advantage": "advantage_normalisation",
    "num_minibatches": "minibatches",
    "num_seeds": "seeds",
    "num_steps": "rollout_length",
    "policy": "memory",
    "policy_kwargs": "memory_options",
    "save_freq": "checkpoint_seconds",
    "sde_sample_freq": "noise_steps",
    "start_e": "epsilon_start",
    "target_network_frequency": "target_period",
    "target_update_interval": "target_period",
    "tau": "polyak",
    "tensorboard_log": "loggers",
    "timesteps": "steps",
    "total_steps": "steps",
    "total_timesteps": "steps",
    "track": "loggers",
    "update_epochs": "epochs",
    "use_sde": "noise_steps",
    "vf_coef": "value_cost",
    "wandb_entity": "entity",
    "wandb_project_name": "project",
}
"""Their name to the field's name here."""

NOTES = {
    "batch_size": "how many there are, not their size",
    "eval_freq": "the best agent by these rows is kept; clew evaluate plays fresh episodes",
    "hidden_size": "hidden_size=64",
    "lstm_hidden_size": "hidden_size=64",
    "n_lstm_layers": "num_layers=2",
    "policy": "the rest of the network is in network",
    "policy_kwargs": "the rest of the network is in network",
    "save_freq": "seconds, not steps",
    "target_network_frequency": "gradient steps, not environment steps",
    "target_update_interval": "gradient steps, not environment steps",
    "tensorboard_log": "tensorboard; the events are in the run's folder",
    "track": "wandb",
    "use_sde": "how long noise is kept; it does not depend on the state",
}
"""What else differs."""

_DEVICE = "JAX chooses it, or the environment variable JAX_PLATFORMS does (cpu, cuda)"
NO_SETTING = {
    "cuda": _DEVICE,
    "device": _DEVICE,
    "patience": "a callback that returns True ends a run: clew.train(config, callbacks=[...])",
    "verbose": "progress is on standard error, or given to clew.train(config, progress=...)",
}
"""What is to be said of settings of theirs that are none here."""


def migrated(args: Sequence[str]) -> list[str]:
    """A command line of an earlier version in the words of this one."""
    words = list(args)
    for index, word in enumerate(words):
        words[index] = FORMER.get(word, word)
        both = FORMER.get(f"{word}={words[index + 1]}") if words[index + 1 :] else None
        if both is not None:
            words[index + 1] = both.partition("=")[2]
    return words


def meanings(name: str) -> tuple[str, ...]:
    """What a setting of another library may be called here; n_steps is n_step in R2D2."""
    return name, name.removesuffix("s"), OTHER_NAMES.get(name, name)


def here(given: str, options: list[str], prefer: str = "") -> list[str]:
    """The options of this library that mean what another library's option does.

    Args:
        given: the option as typed, with its dashes.
        options: every option of the command.
        prefer: the group to take where several have such an option, for example "--ppo.".
    """
    group, dot, name = given.lstrip("-").replace("-", "_").rpartition(".")
    prefer = f"--{group}." if dot else prefer
    found: list[str] = []
    for meant in meanings(name):
        ending = meant.replace("_", "-")
        named = [o for o in options if o.removeprefix("--").split(".")[-1] == ending]
        preferred = [option for option in named if prefer and option.startswith(prefer)]
        if preferred:
            return preferred
        found = named or found
    return found


def note(given: str, called: str) -> str:
    """A remark on another library's option, in brackets, if it has another name here."""
    text = NOTES.get(_name(given)) if _name(called) != _name(given) else None
    return f" ({text})" if text else ""


def instead(given: str) -> str:
    """What does what another library's option does, where that is no setting; mostly empty."""
    return NO_SETTING.get(_name(given), "")


def _name(given: str) -> str:
    return given.lstrip("-").replace("-", "_").rpartition(".")[2]
