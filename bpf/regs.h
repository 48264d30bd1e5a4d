/* SPDX-License-Identifier: GPL-2.0 */
/*
 * User registers at a probe, per architecture. Only these are read: no kernel
 * types, so no vmlinux.h and no relocation.
 */
#ifndef GPUREC_REGS_H
#define GPUREC_REGS_H

/*
 * In assembly, because clang 14 else merges the loads of a switch into one at a
 * computed address, and the verifier refuses a modified context pointer (all kernels).
 */
#define READ_REG(ctx, reg) ({                                                      \
	__u64 value;                                                               \
	asm volatile("%0 = *(u64 *)(%1 + %2)"                                      \
		     : "=r"(value)                                                 \
		     : "r"(ctx), "i"(__builtin_offsetof(struct pt_regs, reg)));    \
	value;                                                                     \
})

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

#define REG_ARGS 6
#define REG_SP(ctx) ((ctx)->sp)
#define REG_RESULT(ctx) ((ctx)->ax)
/* The call instruction left 8 bytes on the stack that the return took off. */
#define SP_AT_RETURN(entry_sp) ((entry_sp) + 8)
/* First argument on the stack, above the return address. */
#define STACK_ARGS(ctx) ((ctx)->sp + 8)

static __always_inline __u64 reg_arg(struct pt_regs *ctx, __u32 i)
{
	switch (i) {
	case 0: return READ_REG(ctx, di);
	case 1: return READ_REG(ctx, si);
	case 2: return READ_REG(ctx, dx);
	case 3: return READ_REG(ctx, cx);
	case 4: return READ_REG(ctx, r8);
	default: return READ_REG(ctx, r9);
	}
}

/*
 * Where a function whose return is probed goes back to: a trampoline of the kernel,
 * an int3, on newer x86-64 kernels push %rax; push %rcx; push %r11 for a
 * system call. No ordinary code returns to either.
 */
static __always_inline int is_trampoline(__u64 pc)
{
	__u32 code = 0;

	bpf_probe_read_user(&code, sizeof(code), (void *)pc);
	return (code & 0xff) == 0xcc || code == 0x53415150;
}

static __always_inline __u64 return_address(struct pt_regs *ctx)
{
	__u64 pc = 0;

	bpf_probe_read_user(&pc, sizeof(pc), (void *)ctx->sp);
	return pc;
}

/* Whether byte i begins an indirect call, opcode FF /2. */
#define IS_INDIRECT(code, i) (((code) >> 8 * (i) & 0xff) == 0xff && ((code) >> 8 * ((i) + 1) & 0x38) == 0x10)

/* Whether a call instruction ends at an address of code: e8 and 4 bytes, or an indirect one of 2 to 7. */
static __always_inline int is_after_call(__u64 pc)
{
	__u64 code = 0;

	bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 8));
	return (code >> 24 & 0xff) == 0xe8 || IS_INDIRECT(code, 6) || IS_INDIRECT(code, 5) || IS_INDIRECT(code, 2) ||
	       IS_INDIRECT(code, 4) || IS_INDIRECT(code, 1);
}

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs {
	unsigned long regs[31], sp, pc, pstate;
};

#define REG_ARGS 8
#define REG_SP(ctx) ((ctx)->sp)
#define REG_RESULT(ctx) ((ctx)->regs[0])
#define SP_AT_RETURN(entry_sp) (entry_sp)
#define STACK_ARGS(ctx) ((ctx)->sp)

static __always_inline __u64 reg_arg(struct pt_regs *ctx, __u32 i)
{
	switch (i) {
	case 0: return READ_REG(ctx, regs[0]);
	case 1: return READ_REG(ctx, regs[1]);
	case 2: return READ_REG(ctx, regs[2]);
	case 3: return READ_REG(ctx, regs[3]);
	case 4: return READ_REG(ctx, regs[4]);
	case 5: return READ_REG(ctx, regs[5]);
	case 6: return READ_REG(ctx, regs[6]);
	default: return READ_REG(ctx, regs[7]);
	}
}

/* A function whose return is probed goes back to a BRK with the number of uprobes, 5. */
static __always_inline int is_trampoline(__u64 pc)
{
	__u32 code = 0;

	bpf_probe_read_user(&code, sizeof(code), (void *)pc);
	return code == 0xd42000a0;
}

static __always_inline __u64 return_address(struct pt_regs *ctx)
{
	return ctx->regs[30];
}

/* Whether a call instruction, BL or BLR, ends at an address of code. */
static __always_inline int is_after_call(__u64 pc)
{
	__u32 code = 0;

	bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 4));
	return (code & 0xfc000000) == 0x94000000 || (code & 0xfffffc1f) == 0xd63f0000;
}

#else
#error "no register layout for this architecture"
#endif

/* What a function finds at its entry besides registers. */
struct stack_top {
	__u64 caller_pc; /* 0: unreadable */
	__u64 args[3]; /* the first on the stack */
};

/* Reads it all at once: a read of user memory costs more than what it reads. */
static __always_inline void read_stack_top(struct pt_regs *ctx, struct stack_top *top)
{
#if REG_ARGS == 6
	if (!bpf_probe_read_user(top, sizeof(*top), (void *)ctx->sp))
		return;
#else
	bpf_probe_read_user(top->args, sizeof(top->args), (void *)STACK_ARGS(ctx));
#endif
	top->caller_pc = return_address(ctx);
}

/* Integer argument i, a constant below REG_ARGS + 3. */
#define ARG(ctx, top, i) ((i) < REG_ARGS ? reg_arg(ctx, i) : (top)->args[(i) < REG_ARGS ? 0 : (i) - REG_ARGS])

/* call_arg returns integer argument i, counted from 0; 0 if it cannot be read. */
static __always_inline __u64 call_arg(struct pt_regs *ctx, __u32 i)
{
	__u64 v = 0;

	if (i < REG_ARGS)
		return reg_arg(ctx, i);
	bpf_probe_read_user(&v, sizeof(v), (void *)(STACK_ARGS(ctx) + 8 * (i - REG_ARGS)));
	return v;
}

#endif
