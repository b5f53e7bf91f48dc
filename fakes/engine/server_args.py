"""The fields of ServerArgs by version, with their values on a CPU server that was told nothing else.

A table, nothing else; `server_info` reads it. From /server_info of real servers (0.5.12.post1, 0.5.17, 0.5.20 to
0.5.23), otherwise the defaults that the version's source gives. What belongs to one start of one server is null: host,
port, paths, seed.
"""

from __future__ import annotations

from typing import Any

# fmt: off
ARGUMENTS: dict[tuple[str, str], list[tuple[Any, str]]] = {
    ("0.5.12.post1", "0.5.12.post1"): [
        ("layer_first", "hicache_mem_layout"),
        ("no_buffer", "mamba_scheduler_strategy"),
        ("eager", "piecewise_cuda_graph_compiler"),
        ("round-robin-split", "nsa_prefill_cp_mode"),
        (False,
         "enable_deepep_waterfill enable_breakable_cuda_graph "
         "enforce_piecewise_cuda_graph enable_nan_detection enable_nsa_prefill_context_parallel "
         "debug_tensor_dump_inject"),
        (None,
         "grpc_http_sidecar_port nsa_prefill_backend nsa_decode_backend"),
        (True, "record_nolora_graph disable_piecewise_cuda_graph"),
        (32, "cuda_graph_max_bs"),
        ([*range(1, 17), *range(18, 33, 2)], "cuda_graph_bs"),
        (2048, "piecewise_cuda_graph_max_tokens"),
        ([4, *range(8, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64),
          *range(1280, 2049, 256)], "piecewise_cuda_graph_tokens"),
    ],
    ("0.5.12.post1", "0.5.17"): [
        ("", "torchao_config"),
        (False, "enable_expert_distribution_metrics"),
    ],
    ("0.5.12.post1", "0.5.19"): [
        ("in-seq-split", "prefill_cp_mode"),
        (False, "enable_prefill_context_parallel"),
    ],
    ("0.5.12.post1", "0.5.20"): [
        (2048, "chunked_prefill_size"),
        (False, "elastic_ep_rejoin keep_mm_feature_on_device"),
    ],
    ("0.5.12.post1", "0.5.21"): [
        ("sglang_storage", "file_storage_path"),
    ],
    ("0.5.12.post1", "0.5.22"): [
        (False, "speculative_skip_dp_mlp_sync enable_fused_qk_norm_rope"),
    ],
    ("0.5.12.post1", "0.5.23"): [
        ("", "fastapi_root_path forward_pass_metrics_worker_id"),
        ("AMXINT4", "kt_method"),
        ("BFS", "speculative_ngram_match_type"),
        ("auto",
         "tokenizer_mode load_format model_impl model_config_parser kv_cache_dtype fp8_gemm_runner_backend "
         "fp4_gemm_runner_backend speculative_moe_runner_backend moe_runner_backend deepep_mode eplb_algorithm"),
        ("cpu", "offload_mode"),
        ("csgmv", "lora_backend"),
        ("default", "flashinfer_mxfp4_moe_precision"),
        ("fcfs", "schedule_policy"),
        ("huggingface", "tokenizer_backend"),
        ("info", "log_level"),
        ("kernel", "hicache_io_backend"),
        ("localhost:4317", "otlp_traces_endpoint"),
        ("lru", "radix_eviction_policy lora_eviction_policy"),
        ("model", "sampling_defaults"),
        ("mooncake", "disaggregation_transfer_backend"),
        ("nccl", "remote_instance_weight_loader_backend"),
        ("none", "moe_a2a_backend"),
        ("null", "disaggregation_mode"),
        ("prefill", "speculative_attention_mode"),
        ("pytorch", "sampling_backend"),
        ("round_robin", "load_balance_method"),
        ("text", "log_requests_format"),
        ("timeout", "hicache_storage_prefetch_policy"),
        ("torch_native", "attention_backend"),
        ("triton", "mamba_backend linear_attn_backend"),
        ("trivial", "init_expert_location"),
        ("write_through", "hicache_write_policy"),
        ("x-custom-labels", "tokenizer_metrics_custom_labels_header"),
        ("xgrammar", "grammar_backend"),
        ("zmq_to_scheduler", "encoder_transfer_backend"),
        ("{}", "model_loader_extra_config json_model_override_args"),
        (-1, "offload_group_size"),
        (0,
         "node_rank pp_async_batch_depth base_gpu_id speculative_ngram_external_sam_budget ep_num_redundant_experts "
         "hicache_size cpu_offload_gb"),
        (0.0, "gc_warning_threshold_secs lora_drain_wait_threshold"),
        (0.002, "dynamic_batch_tokenizer_batch_timeout"),
        (0.3, "mem_fraction_static"),
        (0.48, "tbo_token_distribution_threshold"),
        (0.8, "swa_full_tokens_ratio"),
        (0.9, "mamba_full_memory_ratio"),
        (1,
         "tokenizer_worker_num detokenizer_worker_num page_size num_continuous_decode_steps scheduler_recv_interval "
         "nnodes pp_size attn_cp_size moe_dp_size gpu_id_step stream_interval speculative_ngram_min_bfs_breadth "
         "ep_size offload_num_in_group offload_prefetch_step disaggregation_decode_polling_interval"),
        (1.0,
         "schedule_conservativeness speculative_accept_threshold_single speculative_accept_threshold_acc "
         "eplb_min_rebalancing_utilization_threshold"),
        (10, "priority_scheduling_preemption_threshold speculative_ngram_max_bfs_breadth"),
        (1000, "eplb_rebalance_num_iterations expert_distribution_recorder_buffer_size"),
        (10000000, "speculative_ngram_capacity speculative_ngram_external_corpus_max_tokens"),
        (16, "batch_notify_size max_lora_chunk_size"),
        (16384, "max_prefill_tokens"),
        (18, "speculative_ngram_max_trie_depth"),
        (2, "log_requests_level kt_threadpool_count"),
        (2.0, "hicache_ratio"),
        (256, "mamba_track_interval"),
        (30, "prefill_delayer_max_delay_passes"),
        (32, "torch_compile_max_bs dynamic_batch_tokenizer_batch_size"),
        (4, "weight_loader_prefetch_num_threads"),
        (40, "decode_log_interval"),
        (512, "num_reserved_decode_tokens"),
        (6789, "engine_info_bootstrap_port"),
        (8, "triton_attention_num_kv_splits max_loras_per_batch sm_group_num"),
        (8998, "disaggregation_bootstrap_port"),
        ([], "uvicorn_access_log_exclude_prefixes encoder_urls custom_weight_loader"),
        (False,
         "trust_remote_code is_embedding enable_fp32_lm_head quantize_and_serve enable_dynamic_chunking "
         "enable_priority_scheduling disable_priority_preemption abort_on_priority_when_disabled "
         "schedule_low_priority_values_first disable_hybrid_swa_memory prefill_only_disable_kv_cache "
         "disable_radix_cache disable_chunked_prefix_cache enable_mixed_chunk enable_dp_attention "
         "enable_dp_attention_local_control_broadcast enable_dp_lm_head enable_attn_tp_input_scattered "
         "enable_p2p_check sleep_on_idle use_ray grpc_mode skip_server_warmup enable_http2 enable_ssl_refresh "
         "enable_cache_report strip_thinking_cache enable_strict_thinking allow_auto_truncate "
         "stream_response_default_include_usage incremental_streaming_output enable_streaming_session log_requests "
         "show_time_cost enable_metrics enable_mfu_metrics enable_metrics_for_all_schedulers "
         "enable_request_time_stats_logging enable_forward_pass_metrics enable_trace export_metrics_to_file "
         "constrained_json_disable_any_whitespace disable_flashinfer_autotune disable_cuda_graph_padding "
         "enable_profile_cuda_graph enable_cudagraph_gc debug_cuda_graph enable_layerwise_nvtx_marker "
         "enable_nccl_nvls enable_symm_mem triton_attention_reduce_in_fp32 flashinfer_mla_disable_ragged "
         "enable_precise_embedding_interpolation enable_fused_moe_sum_all_reduce disable_custom_all_reduce "
         "enable_mscclpp enable_torch_symm_mem pre_warm_nccl enable_quant_communications "
         "enable_flashinfer_allreduce_fusion enforce_disable_flashinfer_allreduce_fusion "
         "enable_aiter_allreduce_fusion enable_torch_compile enable_torch_compile_debug_mode "
         "enable_multi_layer_eagle speculative_adaptive enable_eplb enable_elastic_expert_backup "
         "disable_flashinfer_cutlass_moe_fp4_allgather disable_shared_experts_fusion enforce_shared_experts_fusion "
         "enable_hierarchical_cache enable_hisparse enable_broadcast_mm_inputs_process enable_prefix_mm_cache "
         "mm_enable_dp_encoder enable_mm_global_cache disable_fast_image_processor lora_use_virtual_experts "
         "lora_strict_loading enable_two_batch_overlap enable_single_batch_overlap enable_lmcache "
         "disaggregation_decode_enable_radix_cache disaggregation_decode_enable_offload_kvcache encoder_only "
         "language_only enable_adaptive_dispatch_to_encoder enable_pdmux weight_loader_disable_mmap "
         "weight_loader_prefetch_checkpoints weight_loader_drop_cache_after_load "
         "remote_instance_weight_loader_start_seed_via_transfer_engine delete_ckpt_after_loading "
         "checkpoint_engine_wait_weights_before_ready enable_prefill_delayer enable_deterministic_inference "
         "enable_dynamic_batch_tokenizer enable_tokenizer_batch_encode disable_tokenizer_batch_decode "
         "enable_memory_saver enable_weights_cpu_backup enable_draft_weights_cpu_backup "
         "enable_custom_logit_processor enable_return_hidden_states enable_return_routed_experts "
         "enable_return_indexer_topk disable_outlines_disk_cache enable_mis"),
        (None,
         "model_path tokenizer_path context_length enable_multimodal revision dtype quantization "
         "quantization_param_path modelopt_quant modelopt_checkpoint_restore_path modelopt_checkpoint_save_path "
         "modelopt_export_path rl_quant_profile max_running_requests max_queued_requests max_total_tokens "
         "prefill_max_requests default_priority_value nccl_port dist_timeout dist_init_addr tp_size "
         "pp_max_micro_batch_size dp_size device random_seed watchdog_timeout soft_watchdog_timeout "
         "custom_sigquit_handler numa_node gc_threshold host port warmups ssl_keyfile ssl_certfile ssl_ca_certs "
         "ssl_keyfile_password api_key admin_api_key served_model_name weight_version chat_template "
         "hf_chat_template_name completion_template reasoning_parser tool_call_parser tool_server "
         "preferred_sampling_params log_level_http log_requests_target crash_dump_folder "
         "tokenizer_metrics_allowed_custom_labels extra_metric_labels bucket_time_to_first_token "
         "bucket_inter_token_latency bucket_e2e_request_latency prompt_tokens_buckets generation_tokens_buckets "
         "kv_events_config forward_pass_metrics_ipc_name export_metrics_to_file_dir "
         "constrained_json_whitespace_pattern decode_attention_backend prefill_attention_backend "
         "mm_attention_backend triton_attention_split_tile_size speculative_algorithm speculative_draft_model_path "
         "speculative_draft_model_revision speculative_draft_load_format speculative_num_steps "
         "speculative_eagle_topk speculative_num_draft_tokens speculative_dflash_block_size speculative_token_map "
         "speculative_draft_attention_backend speculative_draft_window_size speculative_moe_a2a_backend "
         "speculative_draft_model_quantization speculative_adaptive_config speculative_ngram_external_corpus_path "
         "ep_dispatch_algorithm eplb_rebalance_layers_per_chunk expert_distribution_recorder_mode deepep_config "
         "moe_dense_tp_size elastic_ep_backend mooncake_ib_device max_mamba_cache_size mamba_ssm_dtype "
         "linear_attn_decode_backend linear_attn_prefill_backend hicache_storage_backend "
         "hicache_storage_backend_extra_config hisparse_config limit_mm_data_per_request enable_lora "
         "enable_lora_overlap_loading max_lora_rank lora_target_modules lora_paths max_loaded_loras "
         "experts_shared_outer_loras kt_weight_path kt_cpuinfer kt_num_gpu_experts kt_max_deferred_experts_per_token "
         "dllm_algorithm dllm_algorithm_config disaggregation_ib_device pdmux_config_path "
         "remote_instance_weight_loader_seed_instance_ip remote_instance_weight_loader_seed_instance_service_port "
         "remote_instance_weight_loader_send_weights_group_ports modelexpress_config download_dir model_checksum "
         "decrypted_config_file decrypted_draft_config_file prefill_delayer_token_usage_low_watermark "
         "prefill_delayer_forward_passes_buckets prefill_delayer_wait_seconds_buckets "
         "prefill_delayer_queue_min_ratio prefill_delayer_max_delay_ms rl_on_policy_target "
         "debug_tensor_dump_output_folder debug_tensor_dump_layers debug_tensor_dump_input_file forward_hooks "
         "msprobe_dump_config"),
        (True, "skip_tokenizer_init disable_overlap_schedule disable_cuda_graph"),
        ({}, "mm_process_config"),
    ],
    ("0.5.17", "0.5.19"): [
        ("round-robin-split", "dsa_prefill_cp_mode"),
        (False, "enable_dsa_prefill_context_parallel"),
    ],
    ("0.5.17", "0.5.20"): [
        ({"decode": {"backend": "disabled", "max_bs": 32, "bs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
        15, 16, 18, 20, 22, 24, 26, 28, 30, 32], "tc_compiler": "eager", "full_prefill_max_req": None,
        "full_prefill_prefix_chunk_tokens": None}, "prefill": {"backend": "disabled", "max_bs": 2048, "bs": [4,
        8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320,
        352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048],
        "tc_compiler": "eager", "full_prefill_max_req": None, "full_prefill_prefix_chunk_tokens": None}},
         "cuda_graph_config"),
    ],
    ("0.5.17", "0.5.21"): [
        (None, "cuda_graph_tc_compiler"),
    ],
    ("0.5.17", "0.5.23"): [
        ("ag_rs", "dcp_comm_backend"),
        ("page_first", "hicache_mem_layout"),
        ("auto",
         "bf16_gemm_backend dsa_paged_mqa_logits_backend deepep_dispatcher_output_dtype mamba_radix_cache_strategy"),
        ("cpu", "mm_feature_transport"),
        ("length", "retraction_policy"),
        ("none", "kv_canary kv_canary_real_data"),
        ("null", "decoupled_spec_role"),
        ("off", "weight_cache_mode"),
        ("request", "trace_modules"),
        ("sgl-kernel", "dsa_topk_backend"),
        (-1, "mamba_max_states_per_path"),
        (0,
         "ep_join_rank_offset mamba_cache_philox_rounds mm_processor_worker_num mm_io_worker_num "
         "optimistic_prefill_attempts kv_canary_sweep_interval"),
        (1, "dcp_size dwdp_size"),
        (15, "load_snapshot_publish_interval"),
        (16, "linear_replayssm_cache_len"),
        (1800, "weight_cache_timeout"),
        (2, "fuseep_mode"),
        (32, "asr_max_concurrent_sessions"),
        (60, "asr_max_buffer_seconds"),
        (600, "elastic_ep_scale_timeout"),
        (8997, "encoder_bootstrap_port"),
        ([], "encoder_register_urls"),
        (False,
         "enable_tf32_matmul enable_page_major_kv_layout enable_unified_memory enable_prefill_cp "
         "enable_dsa_cache_layer_split enable_cp_decode_attn_tp disable_attn_tp_gather smg_grpc_mode "
         "enable_session_radix_cache disable_prefill_cuda_graph disable_decode_cuda_graph "
         "enable_deepseek_v4_fp4_indexer enable_scattered_sconv speculative_dspark_align_verify_tokens_to_graph_tier "
         "speculative_use_rejection_sampling enable_waterfill enable_mamba_cache_stochastic_rounding "
         "uses_mamba_radix_cache enable_int8_mamba_checkpoint enable_linear_replayssm enable_linear_replayssm_spec "
         "enable_flexkv"),
        (None,
         "dcp_replicate_q_proj cp_strategy grpc_port sidecar sidecar_args default_chat_template_kwargs "
         "smg_http_sidecar_port stat_loggers radix_cache_backend dsa_prefill_backend dsa_decode_backend "
         "flashinfer_autotune_skip_ops cuda_graph_backend_decode cuda_graph_backend_prefill cuda_graph_max_bs_decode "
         "cuda_graph_max_bs_prefill cuda_graph_bs_decode cuda_graph_bs_prefill flashinfer_allreduce_fusion_backend "
         "speculative_dspark_block_size speculative_dspark_sps_table_path speculative_dspark_confidence_sts_path "
         "decoupled_spec_bind_endpoint decoupled_spec_connect_endpoints decoupled_spec_rank spec_trace_dir "
         "ep_join_mode elastic_ep_initial_size max_ep_size int8_mamba_ckpt_size linear_attn_verify_backend "
         "lmcache_config_file flexkv_config_file disaggregation_decode_extra_slots min_free_slots_delay "
         "return_hidden_states_mode weight_cache_socket"),
        (True, "dllm_fdfo"),
    ],
    ("0.5.18", "0.5.23"): [
        ("auto", "image_processor_backend"),
        ("mooncake", "mm_global_cache_backend"),
        ("off", "expert_balancedness_report_mode"),
        ("serial", "startup_weight_load_mode"),
        (16, "c128_page_size"),
        (200, "http2_max_concurrent_streams"),
        (64, "media_url_max_file_size_mb"),
        ([], "allowed_media_domains"),
        (False,
         "enable_tp_lm_head_all_to_all mlx_enable_sampling _speculative_draft_quantization_explicitly_set "
         "trust_mm_content_hashes language_model_only"),
        (None,
         "speculative_draft_kv_cache_dtype mm_preprocess_cache_size_mb disaggregation_decode_retraction_backup"),
    ],
    ("0.5.19", "0.5.23"): [
        ("auto", "dsv4_prefill_backend"),
        ("cache", "hicache_host_memory_mode"),
        ("direct", "deepep_v2_mode"),
        ("sgl-kernel", "speculative_dsa_topk_backend"),
        (0, "prefill_decode_interval"),
        (1048576, "http2_initial_connection_window_size"),
        (4, "grpc_worker_threads"),
        (8, "hicache_storage_prefetch_retry_poll_interval hicache_storage_prefetch_retry_max_attempts"),
        (False,
         "enable_shared_experts_attn_tp enable_dense_mlp_attn_tp enable_layernorm_sp enable_w4a4_mxfp4_megamoe"),
        (None, "gated_launch_port load_publish_endpoint enable_lean_attention"),
    ],
    ("0.5.20", "0.5.23"): [
        ("auto", "dsv4_attn_backend"),
        ("mooncake", "unified_cache_external_linker_backend"),
        ("pinned", "ple_offload_backend"),
        (2048, "speculative_domino_candidate_pool_size"),
        (4096, "sampling_mask_max_tokens"),
        (False,
         "return_input_ids return_output_ids enable_unified_cache_external_linker "
         "_radix_eviction_policy_explicitly_set enable_response_store"),
        (None,
         "radix_eviction_policy_config uno_lora_path ple_offload_embedding ple_offload_dir "
         "flashinfer_a2a_dispatch_type"),
    ],
    ("0.5.21", "0.5.21"): [
        (0.0, "disaggregation_decode_host_receive_threshold"),
    ],
    ("0.5.21", "0.5.22"): [
        (False, "enable_decoder_swa_bounded_replay"),
    ],
    ("0.5.21", "0.5.23"): [
        ("auto", "prefill_kv_cache_dequant_dtype"),
        ("rs+rsv", "boundary_reduction speculative_boundary_reduction"),
        (0.8, "hicache_host_memory_fraction"),
        (300, "grpc_response_timeout_secs"),
        (4096, "chunked_prefill_size"),
        (False,
         "trust_request_chat_template disaggregation_enable_kv_checksum enable_pd_role_switch "
         "enable_linker_mla_dedup _swa_full_tokens_ratio_explicitly_set enable_encoder_swa_bounded_replay "
         "disable_aiter_allreduce_fusion_in_prefill disable_aiter_allreduce_fusion_in_decode"),
        (None,
         "shared_experts_tp_size constrained_json_max_whitespace_cnt cuda_graph_prefill_max_context "
         "cuda_graph_max_seq_len_prefill otlp_service_name swa_prefix_tails speculative_draft_sink_size"),
        ({"decode": {"backend": "disabled", "max_bs": 32, "bs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
        15, 16, 18, 20, 22, 24, 26, 28, 30, 32], "tc_compiler": "eager", "max_context_size": None,
        "full_prefill_max_req": None, "full_prefill_prefix_chunk_tokens": None, "max_seq_len": None}, "prefill":
        {"backend": "disabled", "max_bs": 2048, "bs": [4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112, 128,
        144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832,
        896, 960, 1024, 1280, 1536, 1792, 2048], "tc_compiler": "eager", "max_context_size": None,
        "full_prefill_max_req": None, "full_prefill_prefix_chunk_tokens": None, "max_seq_len": None}},
         "cuda_graph_config"),
    ],
    ("0.5.22", "0.5.23"): [
        (None, "file_storage_path"),
        (1.0, "disaggregation_decode_host_receive_threshold"),
        ("<redacted>", "watermark_config watermark_key watermark_key_b"),
        ("auto", "qsa_indexer_dtype"),
        ("early", "disaggregation_decode_allocation_policy"),
        (0, "dsa_triton_union"),
        (0.5, "watermark_mixing_probability"),
        (1, "attn_dp_size"),
        (1.0, "watermark_max_probability"),
        (4, "watermark_context_window"),
        (False,
         "enable_kv_cache_sharding speculative_use_block_verification enable_cp_tp_group_sharing enable_watermark "
         "watermark_default_enabled watermark_enforce_all"),
        (None, "speculative_enable_w4a4_mxfp4_megamoe enable_dsa_fused_indexer"),
    ],
    ("0.5.23", "0.5.23"): [
        (None, "enable_fused_qk_norm_rope enable_decoder_swa_bounded_replay"),
        (0, "prefill_decode_interval_min_bs"),
        (False,
         "enable_amd_monokernel enable_paged_experts enable_nvidia_megakernel enable_megamoe_for_layernorm_sp "
         "enable_http_worker_reuseport enable_return_aux_hidden_states"),
        (None,
         "paged_experts_num_resident unified_cache_external_linker_config aux_hidden_state_capture "
         "return_aux_hidden_state_layer_ids"),
    ],
}
# fmt: on
"""(first version, last version) -> values with the names of the fields that have them."""
