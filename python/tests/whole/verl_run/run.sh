#!/usr/bin/env bash
# One whole run of verl 0.9.1's main_ppo, 6 steps, some 2 minutes on a CPU: Ray, hydra, the task runner, fit, transfer queue, agent and
# reward loops, FSDP2 and checkpoints are verl's; the rollout is transformers' `generate`. Usage: run.sh FOLDER [OVERRIDES...], e.g.
#     PYTHON=.peers/bin/python bash run.sh /tmp/v algorithm.adv_estimator=advlab +algorithm.advlab.recipe=$PWD/mine.rhai
# DEVICE=cuda runs it on a GPU. A reward is the share of even numbers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(realpath -m "${1:?usage: run.sh FOLDER [OVERRIDES...]}")
shift
python=${PYTHON:-python3}
[ -d "$folder/model" ] || "$python" "$here/prepare.py" "$folder"
device=${DEVICE:-cpu}
VERL_PLATFORM=$([ "$device" = cpu ] && echo cpu || echo nvidia)
export VERL_PLATFORM HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
export VERL_USE_EXTERNAL_MODULES=verl_hf${OWN_MODULES:-} PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 WANDB_MODE=disabled TENSORBOARD_DIR=$folder/tensorboard
# On a loaded machine Ray takes its time to start. Its sockets want a short path.
export RAY_raylet_start_wait_time_s=180
RAY_TMPDIR=$(mktemp -d /tmp/ray.XXXX)
export RAY_TMPDIR
cd "$folder"
exec timeout "${LIMIT:-500}" "$python" -m verl.trainer.main_ppo \
    data.train_files="$folder/train.parquet" data.val_files="$folder/val.parquet" \
    data.train_batch_size=8 data.max_prompt_length=8 data.max_response_length=8 data.dataloader_num_workers=0 \
    actor_rollout_ref.model.path="$folder/model" actor_rollout_ref.model.use_remove_padding=False \
    actor_rollout_ref.model.enable_gradient_checkpointing=False \
    +actor_rollout_ref.model.override_config.attn_implementation=eager \
    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.fsdp_config.model_dtype=fp32 \
    actor_rollout_ref.actor.fsdp_config.dtype=float32 actor_rollout_ref.actor.fsdp_config.use_torch_compile=False \
    actor_rollout_ref.actor.use_torch_compile=False actor_rollout_ref.actor.optim.lr=1e-3 \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.rollout.name=hf_generate actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.agent.num_workers=1 \
    actor_rollout_ref.rollout.free_cache_engine=False \
    reward.num_workers=1 reward.custom_reward_function.path="$here/reward.py" \
    trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1 \
    trainer.total_epochs=2 trainer.total_training_steps=6 'trainer.logger=[console]' trainer.device="$device" \
    trainer.default_local_dir="$folder/checkpoints" \
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1 \
    +ray_kwargs.ray_init.num_gpus=1 ray_kwargs.ray_init.num_cpus=64 +ray_kwargs.ray_init.include_dashboard=False \
    "$@"
