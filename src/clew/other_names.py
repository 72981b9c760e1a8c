"""Other names of settings: those of earlier versions of clew and of other libraries.

The latter are hints for users of Stable-Baselines3, CleanRL, RLlib, Sample Factory, RSL-RL,
rl_games, Isaac Lab, skrl, Brax, TorchRL, Tianshou, Acme, Stoix or ML-Agents.
"""

from collections.abc import Sequence

FORMER = {"--influence=ablation": "--influence=occlusion"}
"""Former values of options with the present ones."""

OTHER_NAMES = {
    "action_repeat": "frame_skip",
    "activation_fn": "nonlinearity",
    "actor_lr": "learning_rate",
    "algo": "algorithm",
    "alpha": "initial_temperature",
    "anneal_lr": "schedule",
    "asymmetric": "critic_only",
    "asymmetric_observations": "critic_only",
    "attention_dim": "memory_options",
    "attention_head_dim": "memory_options",
    "attention_memory_inference": "memory_options",
    "attention_memory_training": "memory_options",
    "attention_num_heads": "memory_options",
    "attention_num_transformer_units": "memory_options",
    "attention_position_wise_mlp_dim": "memory_options",
    "autotune": "temperature_rate",
    "batch_size": "minibatches",
    "buffer_size": "replay_steps",
    "burn_in_length": "burn_in",
    "burnin": "burn_in",
    "capture_video": "video_every",
    "central_value_config": "critic_only",
    "clip_coef": "clip_ratio",
    "clip_eps": "clip_ratio",
    "clip_obs": "observation_clip",
    "clip_param": "clip_ratio",
    "clip_range": "clip_ratio",
    "clip_range_vf": "value_clip",
    "clip_reward": "reward_clip",
    "clip_vloss": "value_clip",
    "CnnLstmPolicy": "lstm",
    "CnnPolicy": "none",
    "context_length": "memory_options",
    "critic_coef": "value_cost",
    "critic_lr": "learning_rate",
    "d_model": "memory_options",
    "desired_kl": "target_kl",
    "discount": "gamma",
    "discount_factor": "gamma",
    "e_clip": "clip_ratio",
    "empirical_normalization": "normalise_observations",
    "enable_critic_lstm": "memory_of_critic",
    "end_e": "epsilon_end",
    "ent_coef": "entropy_cost",
    "entropy_coef": "entropy_cost",
    "entropy_coeff": "entropy_cost",
    "entropy_loss_scale": "entropy_cost",
    "env_config": "env_options",
    "env_frameskip": "frame_skip",
    "env_id": "env",
    "env_kwargs": "env_options",
    "eps_clip": "clip_ratio",
    "eval_freq": "evaluate_every",
    "exp_name": "name",
    "experiment_name": "name",
    "exploration_final_eps": "epsilon_end",
    "exploration_initial_eps": "epsilon_start",
    "exploration_loss_coeff": "entropy_cost",
    "fcnet_activation": "nonlinearity",
    "fcnet_hiddens": "encoder_size",
    "features_extractor_class": "encoder",
    "final_lr": "schedule",
    "frame_stack": "memory",
    "frames_per_batch": "rollout_length",
    "frameskip": "frame_skip",
    "gae_lambda": "lam",
    "grad_clip": "max_grad_norm",
    "grad_norm_clip": "max_grad_norm",
    "gradient_clip": "max_grad_norm",
    "hidden_dim": "memory_options",
    "hidden_layer_size": "memory_options",
    "hidden_size": "memory_options",
    "hidden_units": "encoder_size",
    "horizon_length": "rollout_length",
    "init_lr": "learning_rate",
    "init_noise_std": "initial_log_std",
    "initial_alpha": "initial_temperature",
    "kl_threshold": "target_kl",
    "lambd": "lam",
    "lambda": "lam",
    "lambda_": "lam",
    "layer_num": "memory_options",
    "learning_epochs": "epochs",
    "log_dir": "run_dir",
    "log_interval": "log_every",
    "log_std_init": "initial_log_std",
    "lr": "learning_rate",
    "lr_schedule": "schedule",
    "lstm_cell_size": "memory_options",
    "lstm_hidden_size": "memory_options",
    "lstm_kwargs": "memory_options",
    "lstm_use_prev_action": "previous_action",
    "lstm_use_prev_action_reward": "previous",
    "lstm_use_prev_reward": "previous",
    "max_episode_steps": "time_limit",
    "max_replay_size": "replay_steps",
    "max_seq_len": "sequence_length",
    "mem_len": "memory_options",
    "memory_len": "memory_options",
    "memory_size": "memory_options",
    "mini_batches": "minibatches",
    "mini_epochs": "epochs",
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
    "normalize": "normalise_observations",
    "normalize_advantage": "advantage_normalisation",
    "normalize_input": "normalise_observations",
    "normalize_returns": "normalise_rewards",
    "num_actors": "num_envs",
    "num_batches_per_epoch": "minibatches",
    "num_env_runners": "processes",
    "num_envs_per_env_runner": "num_envs",
    "num_envs_per_worker": "num_envs",
    "num_epoch": "epochs",
    "num_epochs": "epochs",
    "num_heads": "memory_options",
    "num_layers": "memory_options",
    "num_learning_epochs": "epochs",
    "num_mini_batches": "minibatches",
    "num_minibatches": "minibatches",
    "num_privileged_obs": "critic_only",
    "num_rollout_workers": "processes",
    "num_seeds": "seeds",
    "num_sgd_iter": "epochs",
    "num_sgd_steps_per_step": "gradient_steps",
    "num_steps": "rollout_length",
    "num_steps_per_env": "rollout_length",
    "num_workers": "processes",
    "obs_groups": "critic_only",
    "ortho_init": "init",
    "policy": "memory",
    "policy_kwargs": "memory_options",
    "policy_lr": "learning_rate",
    "ppo_clip_ratio": "clip_ratio",
    "ppo_clip_value": "value_clip",
    "ppo_epochs": "epochs",
    "prioritized_replay_alpha": "priority_exponent",
    "prioritized_replay_beta": "importance_exponent",
    "privileged_obs": "critic_only",
    "privileged_observations": "critic_only",
    "q_lr": "learning_rate",
    "ratio_clip": "clip_ratio",
    "recurrence": "sequence_length",
    "recurrent_chunk_size": "sequence_length",
    "repeat_per_collect": "epochs",
    "replay_burn_in": "burn_in",
    "rnn_hidden_dim": "memory_options",
    "rnn_hidden_size": "memory_options",
    "rnn_layers": "memory_options",
    "rnn_lr": "memory_rate",
    "rnn_num_layers": "memory_options",
    "rnn_size": "memory_options",
    "rnn_type": "memory",
    "rollout": "rollout_length",
    "rollout_fragment_length": "rollout_length",
    "rollouts": "rollout_length",
    "save_freq": "checkpoint_seconds",
    "sde_sample_freq": "noise_steps",
    "seq_len": "sequence_length",
    "seq_length": "sequence_length",
    "sequence_period": "period",
    "sgd_minibatch_size": "minibatches",
    "shared_lstm": "memory_of_critic",
    "stack_num": "memory",
    "start_e": "epsilon_start",
    "state_preprocessor": "normalise_observations",
    "step_per_collect": "rollout_length",
    "sub_batch_size": "minibatches",
    "target_network_frequency": "target_period",
    "target_update_interval": "target_period",
    "target_update_period": "target_period",
    "tau": "polyak",
    "tensorboard_log": "loggers",
    "time_horizon": "rollout_length",
    "timesteps": "steps",
    "total_frames": "steps",
    "total_num_envs": "num_envs",
    "total_steps": "steps",
    "total_timesteps": "steps",
    "trace_length": "sequence_length",
    "track": "loggers",
    "train_batch_size": "rollout_length",
    "train_dir": "run_dir",
    "train_for_env_steps": "steps",
    "train_freq": "rollout_length",
    "train_frequency": "rollout_length",
    "training_num": "num_envs",
    "trxl_dim": "memory_options",
    "trxl_memory_length": "memory_options",
    "trxl_num_heads": "memory_options",
    "trxl_num_layers": "memory_options",
    "update_epochs": "epochs",
    "use_attention": "memory",
    "use_lstm": "memory",
    "use_rnn": "memory",
    "use_sde": "noise_steps",
    "value_loss_coef": "value_cost",
    "value_loss_coeff": "value_cost",
    "value_loss_scale": "value_cost",
    "value_obs_key": "critic_only",
    "vf_clip_param": "value_clip",
    "vf_coef": "value_cost",
    "vf_loss_coeff": "value_cost",
    "vf_share_layers": "memory_of_critic",
    "wandb_entity": "entity",
    "wandb_project_name": "project",
    "window": "memory_options",
    "with_wandb": "loggers",
    "zero_init_states": "first_state",
}
"""Name of a setting in another library to the field's name here."""

_TEMPERATURE = "SAC learns it from there on; with temperature_rate=0 it stays"
_ONE_RATE = "one for all networks; memory_rate and SAC's temperature_rate are fractions of it"
_SEQUENCES = "sequences of a gradient step, not steps"
_EPSILON = "each environment keeps its own epsilon, see epsilon_exponent"
_GRADIENT_STEPS = "after every rollout"
_POLYAK = "the target network moves by this fraction after every gradient step"
_COPIED = "gradient steps between two copies: the target network does not move in between"
_CRITIC = "names of entries of a Dict observation that only the critic reads"
_N_STEP = "returns over this number of steps, without a lambda"
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
    "actor_lr": _ONE_RATE,
    "alpha": _TEMPERATURE,
    "anneal_lr": "linear",
    "asymmetric": _CRITIC,
    "asymmetric_observations": _CRITIC,
    "attention_dim": "hidden_size=64",
    "attention_head_dim": "head_size=32",
    "attention_memory_inference": "window=128",
    "attention_memory_training": "window=128, the same in acting and learning",
    "attention_num_heads": "num_heads=4",
    "attention_num_transformer_units": "num_layers=2",
    "attention_position_wise_mlp_dim": "ffn_size=64",
    "autotune": "with 0 the temperature stays at its initial value",
    "batch_size": "how many there are, not their size",
    "central_value_config": _CRITIC,
    "CnnLstmPolicy": "behind network.encoder=nature",
    "CnnPolicy": "behind network.encoder=nature",
    "context_length": "window=128",
    "critic_lr": _ONE_RATE,
    "d_model": "hidden_size=64",
    "desired_kl": "it ends the gradient steps of a rollout; it does not change the learning rate",
    "enable_critic_lstm": "separate",
    "eval_freq": "environment steps of each seed, not calls",
    "fcnet_activation": "relu or elu, between the encoder's layers",
    "fcnet_hiddens": "width of the layers of network.encoder=mlp; head_size is after the memory",
    "final_lr": "linear, down to 0",
    "frame_stack": "frame_stack, with frames=4 in memory_options",
    "frames_per_batch": "steps of each environment, not of all together",
    "hidden_dim": "hidden_size=64",
    "hidden_layer_size": "hidden_size=64",
    "hidden_size": "hidden_size=64",
    "hidden_units": "width of the layers of network.encoder=mlp",
    "init_noise_std": "its logarithm",
    "initial_alpha": _TEMPERATURE,
    "kl_threshold": "it ends the gradient steps of a rollout; it does not change the learning rate",
    "layer_num": "num_layers=2",
    "log_interval": "updates",
    "lstm_cell_size": "hidden_size=64",
    "lstm_hidden_size": "hidden_size=64",
    "lstm_kwargs": "hidden_size=64",
    "mem_len": "window=128",
    "memory_len": "window=128",
    "memory_size": "hidden_size=64; the window of a transformer is window=128",
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
    "num_privileged_obs": _CRITIC,
    "num_rollout_workers": "with runner=async it is asynchronous.actors",
    "num_sgd_steps_per_step": "after every rollout",
    "num_workers": "with runner=async it is asynchronous.actors",
    "obs_groups": _CRITIC,
    "policy": "the rest of the network is in network",
    "policy_kwargs": "the rest of the network is in network",
    "policy_lr": _ONE_RATE,
    "privileged_obs": _CRITIC,
    "privileged_observations": _CRITIC,
    "q_lr": _ONE_RATE,
    "rnn_hidden_dim": "hidden_size=64",
    "rnn_hidden_size": "hidden_size=64",
    "rnn_layers": "num_layers=2",
    "rnn_lr": "a fraction of learning_rate",
    "rnn_num_layers": "num_layers=2",
    "rnn_size": "hidden_size=64",
    "rnn_type": "gru, lstm or another",
    "save_freq": "seconds, not steps",
    "sgd_minibatch_size": "how many there are, not their size",
    "shared_lstm": "shared, the default, or separate",
    "stack_num": "frame_stack, with frames=4 in memory_options",
    "step_per_collect": "steps of each environment, not of all together",
    "sub_batch_size": "how many there are, not their size",
    "target_network_frequency": "gradient steps, not environment steps",
    "target_update_interval": "gradient steps, not environment steps",
    "target_update_period": "gradient steps, not environment steps",
    "tensorboard_log": "tensorboard; the events are in the run's folder",
    "track": "wandb",
    "train_batch_size": "steps of each environment, not of all together",
    "train_freq": "steps of every environment between two updates",
    "train_frequency": "steps of every environment between two updates",
    "trxl_dim": "hidden_size=64",
    "trxl_memory_length": "window=128",
    "trxl_num_heads": "num_heads=4",
    "trxl_num_layers": "num_layers=2",
    "use_attention": "gtrxl",
    "use_lstm": "lstm",
    "use_rnn": "gru",
    "use_sde": "how many steps noise is kept; it does not depend on the state",
    "value_obs_key": _CRITIC,
    "vf_share_layers": "shared, the default, or separate",
    "window": "window=128",
    "with_wandb": "wandb",
    "zero_init_states": "zero",
}
"""Remarks on what else differs."""

_DEVICE = "JAX chooses it, or the environment variable JAX_PLATFORMS does (cpu, cuda)"
_OPTIMISER = "it is Adam, with learning_rate, adam_b1, adam_b2 and adam_eps of the learner"
_PROGRESS = "progress is on standard error, or given to clew.train(config, progress=...)"
NO_SETTING = {
    "callback": "clew.train(config, callbacks=[...])",
    "cuda": _DEVICE,
    "deterministic": "clew evaluate, watch, inspect have --actions greedy, Python greedy=True",
    "device": _DEVICE,
    "framework": "it is JAX",
    "num_gpus": _DEVICE,
    "optimizer_class": _OPTIMISER,
    "optimizer_kwargs": _OPTIMISER,
    "patience": "a callback that returns True ends a run: clew.train(config, callbacks=[...])",
    "progress_bar": _PROGRESS,
    "render_mode": "clew watch makes a film, wrappers.video_every films of a training",
    "reset_num_timesteps": "clew train --resume (clew.resume_run) continues; start_from restarts",
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
