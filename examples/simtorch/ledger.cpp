/* Lines are collected in one buffer under one lock. They are written when the buffer has 64 KiB,
 * at exit, or one by one with SIMTORCH_LEDGER_SYNC=1. A device's lines are added under the
 * device's lock, so they are in the order of the events. */
#include "ledger.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <charconv>
#include <ctime>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ledger {

thread_local uint64_t events;

static const char header[] =
	"#event\tstart_ns\tend_ns\tpid\ttid\taction\tptr\tbytes\tstream\tdevice\tpool_a\tpool_b\tallocated_bytes\treserved_bytes\t"
	"block_bytes\n"
	"#usage\tstart_ns\tend_ns\tpid\ttid\tptr\tbytes\tallocated_bytes\treserved_bytes\tdevice\n"
	"#checkpoint\tstart_ns\tend_ns\tpid\ttid\tdevice\tallocated_bytes\treserved_bytes\trequested_bytes\tactive_bytes\t"
	"inactive_split_bytes\tsegments\tallocations\tactive_blocks\tinactive_split_blocks\talloc_retries\tooms\tdevice_allocs\t"
	"device_frees\tallocated_peak\treserved_peak\tallocated_total\tallocations_total\tsegments_total\n";

static const char *const action_names[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
					   "segment_map", "segment_unmap", "snapshot", "oom"};

namespace {

enum { FLUSH_AT = 64 << 10 };

class File {
	int fd = -1;
	std::mutex lock;
	std::string buffer;
	bool line_by_line = false;

public:
	File();
	bool is_open() const { return fd >= 0; }
	void add(const char *line, size_t n);
	void flush();
	void finish();  /* from now on, each line is written at once */
	void forget();  /* in a forked child: drop the parent's lines */

private:
	void write_out();
};

/* Formats one line. The longest line has 24 numbers of at most 20 characters. */
struct Line {
	char text[640], *end = text;

	Line(const char *kind, uint64_t start_ns, uint64_t end_ns);
	Line &operator<<(const char *word);
	template <typename Number> Line &operator<<(Number n) { return number(n, 10); }
	Line &hex(uint64_t n);
	void write();

private:
	template <typename Number> Line &number(Number n, int base);
};

} // namespace

/* Never destroyed: other threads may still allocate while the process exits. */
static File &file = *new File;
static thread_local pid_t tid;
static pid_t pid;

File::File()
{
	const char *path = getenv("SIMTORCH_LEDGER"), *sync = getenv("SIMTORCH_LEDGER_SYNC");
	pid = getpid();
	if (!path || !*path)
		return;
	line_by_line = sync && !strcmp(sync, "1");
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	struct stat st;
	if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &st)) {
		fprintf(stderr, "simtorch: error: %s: %m\n", path);
		_exit(1);
	}
	if (st.st_size == 0) {
		buffer = header;
		write_out();
	}
	flock(fd, LOCK_UN);
	atexit([] { file.finish(); });
	pthread_atfork(nullptr, nullptr, [] { file.forget(); });
}

void File::add(const char *line, size_t n)
{
	std::lock_guard<std::mutex> guard(lock);
	buffer.append(line, n);
	if (line_by_line || buffer.size() >= FLUSH_AT)
		write_out();
}

void File::flush()
{
	std::lock_guard<std::mutex> guard(lock);
	write_out();
}

void File::finish()
{
	std::lock_guard<std::mutex> guard(lock);
	line_by_line = true;
	write_out();
}

void File::forget()
{
	new (&lock) std::mutex; /* the thread that held the lock is not in the child */
	buffer.clear();
	pid = tid = getpid();
}

void File::write_out()
{
	for (size_t done = 0; done < buffer.size();) {
		ssize_t n = ::write(fd, buffer.data() + done, buffer.size() - done);
		if (n < 0) {
			fprintf(stderr, "simtorch: error: cannot write the ledger: %m\n");
			/* A ledger with missing lines would make a correct recording look wrong. */
			_exit(1);
		}
		done += (size_t)n;
	}
	buffer.clear();
}

Line::Line(const char *kind, uint64_t start_ns, uint64_t end_ns)
{
	if (!tid)
		tid = gettid();
	*this << kind << start_ns << end_ns << pid << tid;
}

Line &Line::operator<<(const char *word)
{
	end = stpcpy(end, word);
	*end++ = '\t';
	return *this;
}

template <typename Number> Line &Line::number(Number n, int base)
{
	end = std::to_chars(end, text + sizeof(text), n, base).ptr;
	*end++ = '\t';
	return *this;
}

Line &Line::hex(uint64_t n)
{
	*end++ = '0';
	*end++ = 'x';
	return number(n, 16);
}

void Line::write()
{
	end[-1] = '\n';
	file.add(text, (size_t)(end - text));
}

uint64_t now()
{
	if (!file.is_open())
		return 0;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void write_event(const Event &e)
{
	events++;
	if (!file.is_open())
		return;
	Line line("event", e.start_ns, e.end_ns);
	line << action_names[e.action];
	line.hex(e.ptr) << e.bytes;
	line.hex(e.stream) << e.device << e.pool.first << e.pool.second << e.allocated_bytes << e.reserved_bytes << e.block_bytes;
	line.write();
}

void write_usage(const Usage &u)
{
	if (!file.is_open())
		return;
	Line line("usage", u.start_ns, u.end_ns);
	line.hex(u.ptr) << u.bytes << u.allocated_bytes << u.reserved_bytes << u.device;
	line.write();
}

void write_checkpoint(int device, const DeviceStats &s)
{
	if (!file.is_open())
		return;
	uint64_t ns = now();
	Line line("checkpoint", ns, ns);
	line << device << s.allocated_bytes[0].current << s.reserved_bytes[0].current << s.requested_bytes[0].current
	     << s.active_bytes[0].current << s.inactive_split_bytes[0].current << s.segment[0].current << s.allocation[0].current
	     << s.active[0].current << s.inactive_split[0].current << s.num_alloc_retries << s.num_ooms << s.num_device_alloc
	     << s.num_device_free << s.allocated_bytes[0].peak << s.reserved_bytes[0].peak << s.allocated_bytes[0].allocated
	     << s.allocation[0].allocated << s.segment[0].allocated;
	line.write();
}

void flush()
{
	file.flush();
}

} // namespace ledger
