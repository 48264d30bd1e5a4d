/*
 * The ledger of operations: the truth about each operation that the simulated GPU completed, and about the
 * channels and clocks. README.md describes its lines. The caller of each function holds
 * channels_lock, except in a forked child.
 */
#include "channel.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLUSH_AT = 64 << 10, LINE_MAX = 1 << 10, NAME_MAX_BYTES = 512 };

static const char header[] =
	"#work\tpid\tchannel\tcounter\tslot\tkind\tstart_ns\tend_ns\tword_ns\tgpu_ns\tstream\ttid\tcall_ns\tsubmitted_ns\t"
	"grid_x\tgrid_y\tgrid_z\twritten_ns\tkernel\n"
	"#begin, end, join, leave\tpid\tchannel\tcounter\tslot\tclass\ttime_ns\tdevice\tcontext\tstream\n"
	"#torn\tpid\tchannel\tcounter\tslot\ttorn_ns\n"
	"#clock\tpid\tdevice\toffset_ns\tdrift_ppb\torigin_ns\treal_minus_monotonic_ns\n";

static int fd = -1;
static bool line_by_line;
static char buffer[FLUSH_AT + LINE_MAX];
static size_t length;

static void write_all(const char *data, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, data, n);
		if (done < 0) {
			fprintf(stderr, "simcuda: error: ledger of works: %m\n");
			_exit(1); /* a ledger with missing lines would make a correct recording look wrong */
		}
		data += done;
		n -= (size_t)done;
	}
}

void works_flush(void)
{
	if (length > 0)
		write_all(buffer, length);
	length = 0;
}

void works_open(void)
{
	const char *path = getenv("SIMCUDA_WORKS");
	struct stat st;
	if (!path || !*path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &st)) {
		fprintf(stderr, "simcuda: error: %s: %m\n", path);
		_exit(1);
	}
	if (st.st_size == 0)
		write_all(header, sizeof(header) - 1);
	flock(fd, LOCK_UN);
	line_by_line = config.ledger_sync;
}

void works_after_fork(void)
{
	length = 0; /* the parent has these lines */
}

static void end_line(char *end)
{
	*end++ = '\n';
	length = (size_t)(end - buffer);
	if (length >= FLUSH_AT || line_by_line)
		works_flush();
}

static void write_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void write_line(const char *format, ...)
{
	va_list arguments;
	if (fd < 0)
		return;
	va_start(arguments, format);
	char *end = buffer + length;
	end += vsnprintf(end, LINE_MAX - 1, format, arguments);
	va_end(arguments);
	end_line(end);
}

void works_clock(int device)
{
	struct clock_facts c = clock_facts(device);
	write_line("clock\t%d\t%d\t%lld\t%lld\t%llu\t%lld", process_pid, device, (long long)c.offset_ns, (long long)c.drift_ppb,
		   (unsigned long long)c.origin_ns, (long long)c.real_minus_monotonic_ns);
}

void works_channel(const char *event, const struct channel *c, uint64_t stream)
{
	static const char *const classes[] = {"compute", "compute-high", "compute-legacy", "copy-in", "copy-out"};
	write_line("%s\t%d\t%u\t%llu\t0x%llx\t%s\t%llu\t%d\t0x%llx\t0x%llx", event, process_pid, c->number,
		   (unsigned long long)c->counter, (unsigned long long)H(c->slot), classes[c->class],
		   (unsigned long long)clock_real_ns(now_ns()), c->of->memory.device, (unsigned long long)H(c->of->context),
		   (unsigned long long)stream);
}

void works_torn(const struct channel *c, uint64_t torn_ns)
{
	write_line("torn\t%d\t%u\t%llu\t0x%llx\t%llu", process_pid, c->number, (unsigned long long)c->counter,
		   (unsigned long long)H(c->slot), (unsigned long long)torn_ns);
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
	for (int i = 0; text && *text && i < NAME_MAX_BYTES; text++, i++)
		*p++ = *text == '\t' || *text == '\n' ? '?' : *text;
	return p;
}

/* There may be millions of operations, so code of its own formats their lines. */
void works_write(const struct work *w)
{
	static const char *const kinds[] = {
		[WORK_KERNEL] = "kernel", [WORK_COPY_IN] = "copy-in", [WORK_COPY_OUT] = "copy-out",
		[WORK_COPY_ON_DEVICE] = "copy-on-device",
		[WORK_SET] = "set", [WORK_EVENT] = "event", [WORK_GRAPH] = "graph", [WORK_EXTRA] = "extra", [WORK_OTHER] = "other",
	};
	const struct channel *c = w->channel;
	if (fd < 0)
		return;
	char *p = put_text(buffer + length, "work");
	*p++ = '\t';
	p = put_decimal(p, (uint64_t)process_pid);
	p = put_decimal(p, c->number);
	p = put_decimal(p, c->counter);
	p = put_hex(p, H(c->slot));
	p = put_text(p, kinds[w->kind]);
	*p++ = '\t';
	uint64_t start, end; /* an unknown end is 0 */
	time_known(w->start_ns, &start);
	p = put_decimal(p, clock_real_ns(start));
	p = put_decimal(p, time_known(w->end_ns, &end) ? clock_real_ns(end) : 0);
	p = put_decimal(p, clock_real_ns(w->word_ns));
	p = put_decimal(p, clock_gpu_ns(c->of->memory.device, w->word_ns));
	p = put_hex(p, w->stream);
	p = put_decimal(p, (uint64_t)w->tid);
	p = put_decimal(p, w->call_ns);
	p = put_decimal(p, w->submitted_ns);
	for (int i = 0; i < 3; i++)
		p = put_decimal(p, w->grid[i]);
	p = put_decimal(p, clock_real_ns(now_ns()));
	end_line(put_text(p, w->kernel));
}
