/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Classes of the nn.Modules in a stack. PyTorch calls a module by the method _wrapped_call_impl of
 * nn.Module, and before version 2.1 by _call_impl. The type of self is the class of the module. It
 * must be read while the call runs: the frame is gone later.
 *
 * A thread finds the code object of the method by its name, in its first stack with such a frame.
 * Then each Python frame costs a comparison, and each frame of the method two or three reads.
 */
#ifndef GPUREC_MODULECLASS_H
#define GPUREC_MODULECLASS_H

#include "state.h"

/* Offsets in objects of CPython 3.11 to 3.14 with a global interpreter lock. */
#define OBJECT_TYPE 8        /* PyObject.ob_type */
#define TYPE_NAME 24         /* PyTypeObject.tp_name */
#define CELL_VALUE 16        /* PyCellObject.ob_ref */
#define BYTES_DATA 32        /* PyBytesObject.ob_sval */
#define CODE_LOCAL_KINDS 104 /* PyCodeObject.co_localspluskinds */
#define CODE_FILE 112        /* PyCodeObject.co_filename */
#define CODE_NAME 120        /* PyCodeObject.co_name */
#define TEXT_LENGTH 16       /* PyASCIIObject.length */

#define LOCAL_IS_CELL 0x40   /* CO_FAST_CELL */
#define REFERENCE_TAGS 3ULL  /* low bits of _PyStackRef since CPython 3.14; 0 in an address */

/* Versions as in PyProcInfo. Layouts before 3.11 and after 3.14 differ. */
#define PYTHON_3_11 0x030b
#define PYTHON_3_12 0x030c
#define PYTHON_3_14 0x030e

/* Returns the offset of the first local variable in _PyInterpreterFrame. */
static __always_inline __u64 offset_of_locals(__u16 version)
{
	return version < PYTHON_3_14 ? 72 : 80;
}

/* Returns the offset of the characters of a compact ASCII string. */
static __always_inline __u64 offset_of_text(__u16 version)
{
	return version < PYTHON_3_12 ? 48 : 40;
}

/* Returns the offset of the characters of a string of Latin-1 that is not ASCII. */
static __always_inline __u64 offset_of_latin(__u16 version)
{
	return version < PYTHON_3_12 ? 72 : 56;
}

/* Returns the address at an address of user memory; 0 if it is unreadable. */
static __always_inline __u64 read_address(__u64 address)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)address);
	return v;
}

/* Returns the address of an object that is referred to at an address. */
static __always_inline __u64 read_reference(__u64 address)
{
	return read_address(address) & ~REFERENCE_TAGS;
}

/*
 * Returns the address of the name of the class of self, the first local variable of a frame of the
 * method; 0 if it is unreadable.
 */
static __always_inline __u64 class_of_self(const struct module_method *m, __u64 self)
{
	__u64 type;

	self &= ~REFERENCE_TAGS;
	if (m->self_is_cell && self)
		self = read_reference(self + CELL_VALUE);
	type = self ? read_reference(self + OBJECT_TYPE) : 0;
	return type ? read_address(type + TYPE_NAME) : 0;
}

/* What the name of a code object says about it. */
enum code_name {
	CODE_OTHER,
	CODE_CALL_IMPL,         /* _call_impl */
	CODE_WRAPPED_CALL_IMPL, /* _wrapped_call_impl */
};

/* Returns what the name of a code object says, by the 8-byte words of the name. */
static __always_inline enum code_name name_of_code(__u64 code, __u16 version)
{
	__u64 text[3] = {}, name = read_reference(code + CODE_NAME);

	if (!name || bpf_probe_read_user(text, sizeof(text), (void *)(name + offset_of_text(version))))
		return CODE_OTHER;
	if (text[0] == 0x6d695f6c6c61635fULL && (text[1] & 0xffffff) == 0x6c70) /* "_call_im" "pl" */
		return CODE_CALL_IMPL;
	if (text[0] == 0x646570706172775fULL && text[1] == 0x6d695f6c6c61635fULL && /* "_wrapped" "_call_im" */
	    (text[2] & 0xffffff) == 0x6c70)
		return CODE_WRAPPED_CALL_IMPL;
	return CODE_OTHER;
}

/* Returns 1 if the 24 bytes at an address of user memory are "rch/nn/modules/module.py". */
static __always_inline int is_module_file(__u64 address)
{
	__u64 text[3] = {};

	bpf_probe_read_user(text, sizeof(text), (void *)address);
	return text[0] == 0x6d2f6e6e2f686372ULL && text[1] == 0x6d2f73656c75646fULL && text[2] == 0x79702e656c75646fULL;
}

/* Returns 1 if a code object is of the file in which PyTorch defines nn.Module. */
static __always_inline int is_of_module_file(__u64 code, __u16 version)
{
	__u64 name = read_reference(code + CODE_FILE), length = 0;

	bpf_probe_read_user(&length, sizeof(length), (void *)(name + TEXT_LENGTH));
	if (length < 24)
		return 0;
	return is_module_file(name + offset_of_text(version) + length - 24) ||
	       is_module_file(name + offset_of_latin(version) + length - 24);
}

/* Makes a code object the method whose self is read, in a process with a version of CPython. */
static __always_inline void set_module_method(struct module_method *m, __u64 code, __u16 version, __u64 interpreter)
{
	__u64 kinds = read_reference((code & ~REFERENCE_TAGS) + CODE_LOCAL_KINDS);
	__u8 kind = 0;

	bpf_probe_read_user(&kind, sizeof(kind), (void *)(kinds + BYTES_DATA));
	m->locals = offset_of_locals(version);
	m->self_is_cell = kind & LOCAL_IS_CELL;
	m->interpreter = interpreter;
	m->code = code;
}

#endif
