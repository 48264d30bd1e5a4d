// Launches a kernel with parameters of several types, and prints the bytes of their values, one line
// "launch KERNEL HEX HEX …" for each launch. With "use-after-free", it then launches the kernel with memory that it
// has freed: the GPU fails with error 700. scripts/test-gpu-pointers.sh compares the lines with a recording.
//
//     nvcc -arch=sm_90 -O1 -g -o pointers pointers.cu && ./pointers 300 [use-after-free]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <cuda_runtime.h>

static void check(cudaError_t result, const char *call)
{
	if (result != cudaSuccess) {
		fprintf(stderr, "pointers: %s: %s\n", call, cudaGetErrorString(result));
		exit(1);
	}
}
#define CHECK(call) check(call, #call)

struct Shape {
	long rows, columns;
	int rank;
	char order;
};

extern "C" __global__ void mixed(float *data, int n, float factor, double bias, Shape shape, unsigned char mode)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		data[i] = data[i] * factor + (float)bias + (float)shape.rows + (float)mode;
}

extern "C" __global__ void pair(const float *from, float *to, short shift)
{
	to[threadIdx.x] = from[threadIdx.x] + (float)shift;
}

template <typename T> static void print_value(const T &value)
{
	unsigned char bytes[sizeof(T)];
	memcpy(bytes, &value, sizeof(T));
	printf(" ");
	for (unsigned char b : bytes)
		printf("%02x", b);
}

template <typename... T> static void print_launch(const char *kernel, const T &...values)
{
	printf("launch %s", kernel);
	(print_value(values), ...);
	printf("\n");
}

__attribute__((noinline)) static float *load_batch(size_t bytes)
{
	float *p = nullptr;
	CHECK(cudaMalloc(&p, bytes));
	return p;
}

__attribute__((noinline)) static void drop_batch(float *p) { CHECK(cudaFree(p)); }

__attribute__((noinline)) static void run_mixed(float *data, int i, cudaStream_t stream)
{
	// memset makes the padding of the structure known: the driver copies it, too.
	Shape shape;
	memset(&shape, 0, sizeof(shape));
	shape.rows = 100 + i;
	shape.columns = 7 * i;
	shape.rank = 2;
	shape.order = (char)('a' + i % 26);
	int n = 256 + i % 5;
	float factor = 0.25f * (float)i;
	double bias = 1.0 / (i + 1);
	unsigned char mode = (unsigned char)i;
	mixed<<<4, 128, 0, stream>>>(data, n, factor, bias, shape, mode);
	print_launch("mixed", data, n, factor, bias, shape, mode);
}

int main(int argc, char **argv)
{
	const int launches = argc > 1 ? atoi(argv[1]) : 300;
	const bool use_after_free = argc > 2 && !strcmp(argv[2], "use-after-free");
	// Memory of the driver stays mapped in pieces of 2 MiB: only the free of a large block unmaps it.
	const size_t large = 512u << 20;
	cudaStream_t streams[3];
	float *a = load_batch(1 << 20), *b = load_batch(1 << 20), *batch = load_batch(large);
	for (cudaStream_t &s : streams)
		CHECK(cudaStreamCreate(&s));
	for (int i = 0; i < launches; i++) {
		cudaStream_t stream = streams[i % 3];
		if (i % 4 == 3) {
			short shift = (short)(-i);
			pair<<<1, 64, 0, stream>>>(a, b, shift);
			print_launch("pair", (const float *)a, b, shift);
			continue;
		}
		run_mixed(i % 2 ? a : b, i, stream);
	}
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	if (use_after_free) {
		drop_batch(batch);
		run_mixed(batch, launches, streams[1]);
		cudaError_t result = cudaDeviceSynchronize();
		printf("error %d\n", (int)result);
		fflush(stdout);
		sleep(2); // the recorder reads names and the Xid while the process lives
		_exit(0);
	}
	fflush(stdout);
	sleep(1);
	return 0;
}
