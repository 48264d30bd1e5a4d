/* Images of modules and libraries: PTX text or binaries. simcuda reads the names of kernels and
 * the names and sizes of variables from PTX. It reads nothing from binaries. Files and linked
 * images may be either. */
#include "arguments.h"
#include "image.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ELF_HEADER = 64 };
/* linked_mark is in the padding of the ELF header of images that the simulated linker makes. The
 * PTX text follows the header. */
static const char elf_magic[] = "\177ELF", linked_mark[] = "simPTX";
enum { MARK_AT = 9 };

static CUresult copy_text(const char *text, char **out)
{
	*out = strdup(text);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult image_read(const void *image, char **ptx)
{
	/* Magic numbers of ELF, fatbin and the fatbin wrapper. */
	static const uint32_t binary_magics[] = {0x464c457f, 0xba55ed50, 0x466243b1};
	const char *text = image;
	*ptx = NULL;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(binary_magics) / sizeof(*binary_magics); i++) {
		if (memcmp(image, &binary_magics[i], sizeof(binary_magics[i])))
			continue;
		bool linked = !memcmp(text, elf_magic, 4) && !memcmp(text + MARK_AT, linked_mark, sizeof(linked_mark));
		return linked ? copy_text(text + ELF_HEADER, ptx) : CUDA_SUCCESS;
	}
	/* PTX text begins with a directive, a comment or white space, and ends with NUL. */
	if (!((*text == '.' || *text == '/' || isspace((unsigned char)*text)) && strstr(text, ".version")))
		return CUDA_ERROR_INVALID_IMAGE;
	return copy_text(text, ptx);
}

char *image_wrap(const char *ptx, size_t *size)
{
	*size = ELF_HEADER + strlen(ptx) + 1;
	char *image = calloc(1, *size);
	if (!image)
		return NULL;
	memcpy(image, elf_magic, 4);
	memcpy(image + MARK_AT, linked_mark, sizeof(linked_mark));
	memcpy(image + ELF_HEADER, ptx, strlen(ptx));
	return image;
}

CUresult image_read_file(const char *path, char **ptx)
{
	struct stat st;
	*ptx = NULL;
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	CUresult result = CUDA_ERROR_INVALID_IMAGE;
	/* Zeros follow the content: the text of a file has no NUL, and a short file no complete
	 * header. */
	char *content = fstat(fd, &st) ? NULL : calloc(1, (size_t)st.st_size + ELF_HEADER);
	if (content && read(fd, content, (size_t)st.st_size) == st.st_size)
		result = image_read(content, ptx);
	free(content);
	close(fd);
	return result;
}

/* ---- PTX ---- */

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("_$%", c));
}

static const char *skip_space(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

const char *ptx_next_entry(const char *from, size_t *length)
{
	const char *p = strstr(from, ".entry");
	if (!p)
		return NULL;
	p = skip_space(p + strlen(".entry"));
	for (*length = 0; is_name(p[*length]);)
		++*length;
	return p;
}

/* Returns the text after the name of an entry, or NULL if there is none. */
static const char *after_entry(const char *ptx, const char *name)
{
	size_t n = strlen(name), length;
	for (const char *p = ptx; (p = ptx_next_entry(p, &length)); p += length)
		if (length == n && !memcmp(p, name, n))
			return p + n;
	return NULL;
}

bool ptx_has_entry(const char *ptx, const char *name)
{
	return after_entry(ptx, name);
}

bool ptx_has_duration(const char *ptx, const char *name)
{
	static const char parameter[] = ".param .u64 duration_ns";
	const char *p = after_entry(ptx, name);
	if (!p || *(p = skip_space(p)) != '(')
		return false;
	return !strncmp(skip_space(p + 1), parameter, sizeof(parameter) - 1);
}

/* Reads one parameter: .param, optional .align N, a type, optional .ptr with attributes, a name, and an optional
 * number of elements. Returns the text behind it, or NULL. */
static const char *read_parameter(const char *p, struct parameters *out)
{
	uint64_t align = 0, bytes = 0, count = 1, from = 0;
	bool pointer = false;
	for (; *p == '.'; p = skip_space(p)) {
		if (!strncmp(p, ".align", 6)) {
			uint64_t n = strtoull(p + 6, (char **)&p, 10);
			if (!pointer) /* otherwise it is the alignment of the memory */
				align = n;
			continue;
		}
		pointer = pointer || !strncmp(p, ".ptr", 4);
		if (strchr("busf", p[1]) && isdigit((unsigned char)p[2]))
			bytes = strtoull(p + 2, NULL, 10) / 8;
		for (p++; is_name(*p);)
			p++;
	}
	while (is_name(*p))
		p++;
	if (*(p = skip_space(p)) == '[')
		count = strtoull(p + 1, (char **)&p, 10), p += *p == ']';
	if (!bytes || out->len == PARAMETERS_MAX)
		return NULL;
	if (out->len)
		from = out->at[out->len - 1].offset + out->at[out->len - 1].size;
	if (!align)
		align = bytes;
	out->at[out->len].offset = (uint32_t)((from + align - 1) / align * align);
	out->at[out->len].size = (uint32_t)(bytes * count);
	out->at[out->len++].pointer = pointer;
	return skip_space(p);
}

bool ptx_parameters(const char *ptx, const char *name, struct parameters *out)
{
	const char *p = after_entry(ptx, name);
	out->len = 0;
	if (!p || *(p = skip_space(p)) != '(')
		return false;
	for (p = skip_space(p + 1); p && *p != ')'; p = p && *p == ',' ? skip_space(p + 1) : p)
		if (strncmp(p, ".param", 6) || !(p = read_parameter(p, out)) || (*p != ',' && *p != ')'))
			return false;
	return p;
}

/* Returns the bytes of the variable if the text after ".global" declares it, else 0. A
 * declaration looks like: .align 4 .f32 name[16] */
static uint64_t global_bytes(const char *p, const char *name)
{
	uint64_t element = 0;
	size_t n = strlen(name);
	for (p = skip_space(p); *p == '.'; p = skip_space(p)) {
		const char *digits = p + 1 + strcspn(p + 1, "0123456789 \t\n");
		if (!strncmp(p, ".align", 6)) {
			p = skip_space(p + 6);
			p += strspn(p, "0123456789");
			continue;
		}
		element = strtoull(digits, NULL, 10) / 8;
		for (p++; is_name(*p);)
			p++;
	}
	if (strncmp(p, name, n) || is_name(p[n]))
		return 0;
	p = skip_space(p + n);
	return element * (*p == '[' ? strtoull(p + 1, NULL, 10) : 1);
}

uint64_t ptx_global_bytes(const char *ptx, const char *name)
{
	uint64_t bytes = 0;
	/* White space follows in declarations; a dot follows in instructions, as in
	 * ld.global.f32. */
	for (const char *p = ptx; (p = strstr(p, ".global")) && !bytes;) {
		p += strlen(".global");
		if (isspace((unsigned char)*p))
			bytes = global_bytes(p, name);
	}
	return bytes;
}
