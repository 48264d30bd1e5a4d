/*
 * The ledger: one line per driver call, the ground truth for comparing recordings. Code of its own
 * formats the lines, since printf takes longer than the simulated calls. Each thread buffers its
 * lines and appends them with one write(2) to a file opened with O_APPEND. So lines of different
 * threads and processes never mix.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	FLUSH_AT = 64 << 10,
	/* Bytes of all columns but the two names: 22 numbers of at most 20 characters. */
	NUMBERS_MAX = 1 << 10,
	BUFFER = FLUSH_AT + KERNEL_NAME_MAX + NUMBERS_MAX,
};

static const char header[] = "#start_ns\tend_ns\tpid\ttid\tname\tresult\tptr\tbytes\tstream\tcontext\tdevice\tsrc_ptr\tfunction\t"
			     "grid_x\tgrid_y\tgrid_z\tblock_x\tblock_y\tblock_z\tshared_bytes\tvalue\tkernel\n";

bool ledger_off, calls_timed = true;
static int fd = -1;
static atomic_bool line_by_line;

static void write_all(const char *data, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, data, n);
		if (done < 0) {
			fprintf(stderr, "simcuda: error: %s: %m\n", config.ledger);
			/* A ledger with missing lines would make a correct recording look wrong. */
			_exit(1);
		}
		data += done;
		n -= (size_t)done;
	}
}

void ledger_open(void)
{
	if (!config.ledger) {
		ledger_off = true;
		calls_timed = channels_on;
		return;
	}
	fd = open(config.ledger, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	struct stat st;
	if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &st)) {
		fprintf(stderr, "simcuda: error: %s: %m\n", config.ledger);
		_exit(1);
	}
	if (st.st_size == 0)
		write_all(header, sizeof(header) - 1);
	flock(fd, LOCK_UN);
	line_by_line = config.ledger_sync;
}

static char *put_decimal(char *p, uint64_t n)
{
	char digits[20];
	int i = 0;
	do
		digits[i++] = (char)('0' + n % 10);
	while (n /= 10);
	while (i > 0)
		*p++ = digits[--i];
	*p++ = '\t';
	return p;
}

static char *put_signed(char *p, int64_t n)
{
	if (n < 0)
		*p++ = '-';
	return put_decimal(p, n < 0 ? -(uint64_t)n : (uint64_t)n);
}

static char *put_hex(char *p, uint64_t n)
{
	*p++ = '0';
	*p++ = 'x';
	int shift = n ? (63 - __builtin_clzll(n)) & ~3 : 0;
	for (; shift >= 0; shift -= 4)
		*p++ = "0123456789abcdef"[(n >> shift) & 15];
	*p++ = '\t';
	return p;
}

static char *put_text(char *p, const char *text)
{
	for (int i = 0; text && *text && i < KERNEL_NAME_MAX; text++, i++)
		*p++ = *text == '\t' || *text == '\n' ? '?' : *text;
	return p;
}

static char *put_line(char *p, const struct call *c)
{
	p = put_decimal(p, c->start_ns);
	p = put_decimal(p, c->end_ns);
	p = put_signed(p, process_pid);
	p = put_signed(p, c->thread->tid);
	p = put_text(p, c->name);
	*p++ = '\t';
	p = put_decimal(p, (uint32_t)c->result);
	p = put_hex(p, c->ptr);
	p = put_decimal(p, c->bytes);
	p = put_hex(p, c->stream);
	p = put_hex(p, c->context);
	p = put_signed(p, c->device);
	p = put_hex(p, c->src_ptr);
	p = put_hex(p, c->function);
	for (int i = 0; i < 3; i++)
		p = put_decimal(p, c->grid[i]);
	for (int i = 0; i < 3; i++)
		p = put_decimal(p, c->block[i]);
	p = put_decimal(p, c->shared_bytes);
	p = put_signed(p, c->value);
	p = put_text(p, c->kernel);
	*p++ = '\n';
	return p;
}

static void flush_locked(struct thread *t)
{
	write_all(t->buffer, t->length);
	t->length = 0;
}

void ledger_write(const struct call *call)
{
	struct thread *t = call->thread;
	pthread_mutex_lock(&t->lock);
	if (!t->buffer)
		t->buffer = malloc(BUFFER);
	if (!t->buffer) {
		fprintf(stderr, "simcuda: error: out of host memory\n");
		abort();
	}
	t->length = (size_t)(put_line(t->buffer + t->length, call) - t->buffer);
	if (t->length >= FLUSH_AT || line_by_line)
		flush_locked(t);
	pthread_mutex_unlock(&t->lock);
}

void ledger_flush(struct thread *t)
{
	pthread_mutex_lock(&t->lock);
	if (t->length > 0)
		flush_locked(t);
	pthread_mutex_unlock(&t->lock);
}

void ledger_release(struct thread *t)
{
	free(t->buffer);
	t->buffer = NULL;
	t->length = 0;
}

void ledger_at_exit(void)
{
	line_by_line = true;
}
