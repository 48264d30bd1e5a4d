/* SPDX-License-Identifier: GPL-2.0 */
/*
 * User registers at a probe, per architecture. The programs read no other kernel types, so
 * they need no vmlinux.h and no relocations.
 */
#ifndef GPUREC_REGS_H
#define GPUREC_REGS_H

/*
 * Reads a register of ctx. Without assembly, clang 14 merges the loads of a switch into one
 * load at a computed address. The verifier of every kernel rejects a modified context pointer.
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
#define REG_PC(ctx) ((ctx)->ip)
#define REG_RESULT(ctx) ((ctx)->ax)
/* Stack pointer after the return: the call instruction pushed 8 bytes, the return popped them. */
#define SP_AT_RETURN(entry_sp) ((entry_sp) + 8)
/* Address of the first argument on the stack, above the return address. */
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
 * Returns 1 if pc is the trampoline to which a function with a return probe returns. It is an
 * int3, or on newer x86-64 kernels a system call after push %rax; push %rcx; push %r11.
 * No ordinary code returns to either.
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

/* Returns 0 if a function that was entered with this stack pointer and return address has been left. */
static __always_inline int may_be_inside(__u64 entry_sp, __u64 return_pc)
{
	__u64 pc = return_pc;

	bpf_probe_read_user(&pc, sizeof(pc), (void *)entry_sp);
	return pc == return_pc;
}

/* Returns 1 if an indirect call, opcode FF /2, begins at byte i of code. */
#define IS_INDIRECT(code, i) (((code) >> 8 * (i) & 0xff) == 0xff && ((code) >> 8 * ((i) + 1) & 0x38) == 0x10)

/* Returns 1 if a call ends at pc: e8 with 4 bytes, or an indirect call of 2 to 7 bytes. */
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
#define REG_PC(ctx) ((ctx)->pc)
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

/* Returns 1 if pc is the kernel's return trampoline, a BRK with the immediate of uprobes, 5. */
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

/* The return address was in a register, so nothing is known. */
static __always_inline int may_be_inside(__u64 entry_sp, __u64 return_pc)
{
	return 1;
}

/* Returns 1 if a call instruction, BL or BLR, ends at pc. */
static __always_inline int is_after_call(__u64 pc)
{
	__u32 code = 0;

	bpf_probe_read_user(&code, sizeof(code), (void *)(pc - 4));
	return (code & 0xfc000000) == 0x94000000 || (code & 0xfffffc1f) == 0xd63f0000;
}

#else
#error "no register layout for this architecture"
#endif

/* The part of the stack that a function's entry probe reads. */
struct stack_top {
	__u64 caller_pc; /* return address, 0: unreadable */
	__u64 args[5]; /* the first arguments on the stack; the last two only with record_arguments */
};

/*
 * Reads return address and stack arguments at once: each read of user memory has a fixed cost. more is a constant:
 * 1 also reads the last two arguments.
 */
static __always_inline void read_stack_top(struct pt_regs *ctx, struct stack_top *top, int more)
{
#if REG_ARGS == 6
	if (!bpf_probe_read_user(top, sizeof(*top) - (more ? 0 : 16), (void *)ctx->sp))
		return;
#else
	bpf_probe_read_user(top->args, sizeof(top->args) - (more ? 0 : 16), (void *)STACK_ARGS(ctx));
#endif
	top->caller_pc = return_address(ctx);
}

/* Integer argument i, counted from 0; i is a constant below REG_ARGS + 5. */
#define ARG(ctx, top, i) ((i) < REG_ARGS ? reg_arg(ctx, i) : (top)->args[(i) < REG_ARGS ? 0 : (i) - REG_ARGS])

/* Returns integer argument i, counted from 0; 0 if it is unreadable. */
static __always_inline __u64 call_arg(struct pt_regs *ctx, __u32 i)
{
	__u64 v = 0;

	if (i < REG_ARGS)
		return reg_arg(ctx, i);
	bpf_probe_read_user(&v, sizeof(v), (void *)(STACK_ARGS(ctx) + 8 * (i - REG_ARGS)));
	return v;
}

#endif
