"""Other names of settings: those of earlier versions of clew and of other libraries.

The latter are hints for users of Stable-Baselines3, CleanRL or RLlib.
"""

from collections.abc import Sequence

FORMER = {"--influence=ablation": "--influence=occlusion"}
"""Former values of options with the present ones."""

OTHER_NAMES = {
    "activation_fn": "nonlinearity",
    "algo": "algorithm",
    "alpha": "initial_temperature",
    "anneal_lr": "schedule",
    "autotune": "temperature_rate",
    "batch_size": "minibatches",
    "buffer_size": "replay_steps",
    "burn_in_length": "burn_in",
    "capture_video": "video_every",
    "clip_coef": "clip_ratio",
    "clip_obs": "observation_clip",
    "clip_param": "clip_ratio",
    "clip_range": "clip_ratio",
    "clip_range_vf": "value_clip",
    "clip_reward": "reward_clip",
    "clip_vloss": "value_clip",
    "CnnLstmPolicy": "lstm",
    "CnnPolicy": "none",
    "d_model": "memory_options",
    "end_e": "epsilon_end",
    "ent_coef": "entropy_cost",
    "entropy_coeff": "entropy_cost",
    "env_config": "env_options",
    "env_id": "env",
    "env_kwargs": "env_options",
    "eval_freq": "evaluate_every",
    "exp_name": "name",
    "exploration_final_eps": "epsilon_end",
    "exploration_initial_eps": "epsilon_start",
    "fcnet_activation": "nonlinearity",
    "fcnet_hiddens": "encoder_size",
    "features_extractor_class": "encoder",
    "frame_stack": "memory",
    "gae_lambda": "lam",
    "grad_clip": "max_grad_norm",
    "hidden_dim": "memory_options",
    "hidden_size": "memory_options",
    "initial_alpha": "initial_temperature",
    "lambda": "lam",
    "lambda_": "lam",
    "log_dir": "run_dir",
    "log_interval": "log_every",
    "log_std_init": "initial_log_std",
    "lr": "learning_rate",
    "lstm_cell_size": "memory_options",
    "lstm_hidden_size": "memory_options",
    "max_episode_steps": "time_limit",
    "max_seq_len": "sequence_length",
    "minibatch_size": "minibatches",
    "MlpLstmPolicy": "lstm",
    "MlpPolicy": "none",
    "MultiInputLstmPolicy": "lstm",
    "MultiInputPolicy": "none",
    "n_envs": "num_envs",
    "n_epochs": "epochs",
    "n_eval_episodes": "evaluate_episodes",
    "n_heads": "memory_options",
    "n_layers": "memory_options",
    "n_lstm_layers": "memory_options",
    "n_seeds": "seeds",
    "n_stack": "memory",
    "n_steps": "rollout_length",
    "n_timesteps": "steps",
    "net_arch": "head_size",
    "norm_adv": "advantage_normalisation",
    "norm_obs": "normalise_observations",
    "norm_reward": "normalise_rewards",
    "normalize_advantage": "advantage_normalisation",
    "num_env_runners": "processes",
    "num_envs_per_env_runner": "num_envs",
    "num_envs_per_worker": "num_envs",
    "num_epochs": "epochs",
    "num_heads": "memory_options",
    "num_layers": "memory_options",
    "num_minibatches": "minibatches",
    "num_rollout_workers": "processes",
    "num_seeds": "seeds",
    "num_sgd_iter": "epochs",
    "num_steps": "rollout_length",
    "num_workers": "processes",
    "ortho_init": "init",
    "policy": "memory",
    "policy_kwargs": "memory_options",
    "policy_lr": "learning_rate",
    "prioritized_replay_alpha": "priority_exponent",
    "prioritized_replay_beta": "importance_exponent",
    "q_lr": "learning_rate",
    "rollout_fragment_length": "rollout_length",
    "save_freq": "checkpoint_seconds",
    "sde_sample_freq": "noise_steps",
    "seq_len": "sequence_length",
    "sgd_minibatch_size": "minibatches",
    "start_e": "epsilon_start",
    "target_network_frequency": "target_period",
    "target_update_interval": "target_period",
    "tau": "polyak",
    "tensorboard_log": "loggers",
    "timesteps": "steps",
    "total_steps": "steps",
    "total_timesteps": "steps",
    "track": "loggers",
    "train_batch_size": "rollout_length",
    "train_freq": "rollout_length",
    "train_frequency": "rollout_length",
    "update_epochs": "epochs",
    "use_attention": "memory",
    "use_lstm": "memory",
    "use_sde": "noise_steps",
    "vf_clip_param": "value_clip",
    "vf_coef": "value_cost",
    "vf_loss_coeff": "value_cost",
    "wandb_entity": "entity",
    "wandb_project_name": "project",
}
"""Name of a setting in another library to the field's name here."""

_TEMPERATURE = "SAC learns it from there on; with temperature_rate=0 it stays"
_SEQUENCES = "sequences of a gradient step, not steps"
_EPSILON = "each environment keeps an epsilon of its own, see epsilon_exponent"
_GRADIENT_STEPS = "after every rollout"
_POLYAK = "the target network moves by this fraction after every gradient step"
_COPIED = "gradient steps between two copies: the target network does not move in between"
_N_STEP = "its returns are of so many steps, without a lambda"
OF_SOME_LEARNERS = {
    "alpha": {"priority_exponent": ""},
    "end_e": {"epsilon_base": _EPSILON},
    "ent_coef": {"initial_temperature": _TEMPERATURE},
    "entropy_coeff": {"initial_temperature": _TEMPERATURE},
    "exploration_final_eps": {"epsilon_base": _EPSILON},
    "exploration_initial_eps": {"epsilon_base": _EPSILON},
    "gae_lambda": {"n_step": _N_STEP},
    "lambda": {"n_step": _N_STEP},
    "lambda_": {"n_step": _N_STEP},
    "minibatch_size": {"batch_size": _SEQUENCES},
    "n_epochs": {"gradient_steps": _GRADIENT_STEPS},
    "num_epochs": {"gradient_steps": _GRADIENT_STEPS},
    "num_minibatches": {"gradient_steps": _GRADIENT_STEPS},
    "num_sgd_iter": {"gradient_steps": _GRADIENT_STEPS},
    "sgd_minibatch_size": {"batch_size": _SEQUENCES},
    "start_e": {"epsilon_base": _EPSILON},
    "target_network_frequency": {"polyak": _POLYAK},
    "target_update_interval": {"polyak": _POLYAK},
    "tau": {"target_period": _COPIED},
    "train_batch_size": {"batch_size": _SEQUENCES},
    "update_epochs": {"gradient_steps": _GRADIENT_STEPS},
}
"""Their name to what it is for the learners that have such a setting, and what else differs; it
stands before that of `OTHER_NAMES`."""

NOTES = {
    "activation_fn": "relu or elu, between the encoder's layers",
    "alpha": _TEMPERATURE,
    "anneal_lr": "linear",
    "autotune": "with 0 the temperature stays at its initial value",
    "batch_size": "how many there are, not their size",
    "CnnLstmPolicy": "behind network.encoder=nature",
    "CnnPolicy": "behind network.encoder=nature",
    "d_model": "hidden_size=64",
    "eval_freq": "environment steps of each seed, not calls",
    "fcnet_activation": "relu or elu, between the encoder's layers",
    "fcnet_hiddens": "width of the layers of network.encoder=mlp; head_size is after the memory",
    "frame_stack": "frame_stack, with frames=4 in memory_options",
    "hidden_dim": "hidden_size=64",
    "hidden_size": "hidden_size=64",
    "initial_alpha": _TEMPERATURE,
    "log_interval": "updates",
    "lstm_cell_size": "hidden_size=64",
    "lstm_hidden_size": "hidden_size=64",
    "minibatch_size": "how many there are, not their size",
    "MultiInputLstmPolicy": "behind network.encoder=auto",
    "MultiInputPolicy": "behind network.encoder=auto",
    "n_heads": "num_heads=4",
    "n_layers": "num_layers=2",
    "n_lstm_layers": "num_layers=2",
    "n_stack": "frame_stack, with frames=4 in memory_options",
    "net_arch": "one hidden layer of actor and critic after the memory; encoder_size is before it",
    "num_env_runners": "with runner=async it is asynchronous.actors",
    "num_heads": "num_heads=4",
    "num_layers": "num_layers=2",
    "num_rollout_workers": "with runner=async it is asynchronous.actors",
    "num_workers": "with runner=async it is asynchronous.actors",
    "policy": "the rest of the network is in network",
    "policy_kwargs": "the rest of the network is in network",
    "policy_lr": "one for all networks; SAC's memory_rate and temperature_rate are fractions of it",
    "q_lr": "one for all networks; SAC's memory_rate and temperature_rate are fractions of it",
    "save_freq": "seconds, not steps",
    "sgd_minibatch_size": "how many there are, not their size",
    "target_network_frequency": "gradient steps, not environment steps",
    "target_update_interval": "gradient steps, not environment steps",
    "tensorboard_log": "tensorboard; the events are in the run's folder",
    "track": "wandb",
    "train_batch_size": "steps of each environment, not of all together",
    "train_freq": "steps of every environment between two updates",
    "train_frequency": "steps of every environment between two updates",
    "use_attention": "gtrxl",
    "use_lstm": "lstm",
    "use_sde": "how many steps noise is kept; it does not depend on the state",
}
"""Remarks on what else differs."""

_DEVICE = "JAX chooses it, or the environment variable JAX_PLATFORMS does (cpu, cuda)"
_ONE_MEMORY = "actor and critic share the memory; SAC has memory_of_critic=separate"
_OPTIMISER = "it is Adam, with learning_rate, adam_b1, adam_b2 and adam_eps of the learner"
_PROGRESS = "progress is on standard error, or given to clew.train(config, progress=...)"
NO_SETTING = {
    "callback": "clew.train(config, callbacks=[...])",
    "cuda": _DEVICE,
    "deterministic": "clew evaluate, watch, inspect have --actions greedy, Python greedy=True",
    "device": _DEVICE,
    "enable_critic_lstm": _ONE_MEMORY,
    "framework": "it is JAX",
    "num_gpus": _DEVICE,
    "optimizer_class": _OPTIMISER,
    "optimizer_kwargs": _OPTIMISER,
    "patience": "a callback that returns True ends a run: clew.train(config, callbacks=[...])",
    "progress_bar": _PROGRESS,
    "render_mode": "clew watch makes a film, wrappers.video_every films of a training",
    "reset_num_timesteps": "clew train --resume (clew.resume_run) continues; start_from restarts",
    "shared_lstm": _ONE_MEMORY,
    "torch_deterministic": "tasks in JAX repeat bit for bit on one machine with the same versions",
    "verbose": _PROGRESS,
}
"""Hints for settings of other libraries that clew does not have."""


def migrated(args: Sequence[str]) -> list[str]:
    """A command line of an earlier version with the names of this one."""
    words = list(args)
    for index, word in enumerate(words):
        words[index] = FORMER.get(word, word)
        both = FORMER.get(f"{word}={words[index + 1]}") if words[index + 1 :] else None
        if both is not None:
            words[index + 1] = both.partition("=")[2]
    return words


def meanings(name: str) -> tuple[str, ...]:
    """The names that another library's setting may have here.

    n_steps is n_step in R2D2, ent_coef is initial_temperature in SAC, n_eval_episodes is episodes
    of `clew evaluate`.
    """
    own, of_some = name.removeprefix("n_eval_"), OF_SOME_LEARNERS.get(name, ())
    return name, name.removesuffix("s"), own, *of_some, OTHER_NAMES.get(name, name)


def here(given: str, options: list[str], prefer: str = "") -> list[str]:
    """The options of this library that correspond to another library's option.

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
    name, own = _name(given), _name(called)
    text = OF_SOME_LEARNERS.get(name, {}).get(own, NOTES.get(name)) if own != name else None
    return f" ({text})" if text else ""


def instead(given: str) -> str:
    """The hint for another library's option that has no counterpart here; mostly empty."""
    name = _name(given)
    if name in OTHER_NAMES:
        return f"clew calls it {OTHER_NAMES[name]}, which belongs elsewhere"
    return NO_SETTING.get(name, "")


def _name(given: str) -> str:
    return given.lstrip("-").replace("-", "_").rpartition(".")[2]
