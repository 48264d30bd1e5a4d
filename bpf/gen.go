// Package bpf contains the BPF programs of gpurec, the records that they send, and the table of
// probed CUDA functions. The generated Go files and objects are committed; only `make generate`
// needs clang.
package bpf

// The committed objects are built with clang 14 and libbpf-dev 1.1.2 of Debian 12. Other versions
// generate different bytes.
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type event -type stack_event -type name_event -type call_spec -type arg_spec -type class_stats -type thread -type record_kind -type call_class -type loss_reason -type event_flags -type stack_state -type arg_from -type call_decode -type call_effect -type name_source -type name_check -type process_event -type process_change -type stack_mode -type unwound_event -type learned_event -type progress_event -type progress_process -type progress_slot -type progress_sample -type arguments_event -type arguments_form -type kernel_layout -type arguments_stream -type arguments_record -type kept_stream -type hit_kind -type unwinder_slot -type inference_stats -type fingerprint_level -type code_map -type return_probe -type allocator_action -type allocator_source -type process_allocator -type allocator_search -type allocator_beginning -type number_key -type number -type engine_role Cuda cuda.bpf.c
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" Process process.bpf.c
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" Unwind unwind.bpf.c
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type hold_request -type hold_state -type hold_reason Hold hold.bpf.c
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type host_snapshot -type host_return -type host_python -type host_symbol -type host_limits HostStack hoststack.bpf.c
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64,arm64 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" -type switch_thread -type switch_wait -type switch_counters -type switch_limits -type switch_sum -type switch_ender HostSwitch hostswitch.bpf.c
