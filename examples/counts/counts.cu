// Makes a known number of CUDA runtime calls of every common kind. It prints one line
// "expect KIND RESULT COUNT" for each kind of row that a complete recording must have.
// scripts/test-gpu.sh compares these lines with a recording.
//
//     nvcc -o counts counts.cu -cudart static && ./counts 100000
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

static void check(cudaError_t result, const char *call)
{
	if (result != cudaSuccess) {
		fprintf(stderr, "counts: %s: %s\n", call, cudaGetErrorString(result));
		exit(1);
	}
}
#define CHECK(call) check(call, #call)

__global__ void add(float *a, const float *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		a[i] += b[i];
}

__global__ void empty() {}

int main(int argc, char **argv)
{
	const int launches = argc > 1 ? atoi(argv[1]) : 1000, churn = launches / 10, n = 1 << 20;
	const int captured = 10, replays = 7;
	float *a, *b;
	void *p;
	std::vector<float> host(n, 1.f);
	cudaStream_t stream;

	CHECK(cudaMalloc(&a, n * sizeof(float)));
	CHECK(cudaMalloc(&b, n * sizeof(float)));
	CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(b, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMallocAsync(&p, 1 << 20, stream));
	CHECK(cudaFreeAsync(p, stream));
	CHECK(cudaMallocManaged(&p, 1 << 16));
	CHECK(cudaFree(p));
	CHECK(cudaHostAlloc(&p, 1 << 16, 0));
	CHECK(cudaFreeHost(p));
	CHECK(cudaMemsetAsync(a, 0, n * sizeof(float), stream));
	CHECK(cudaMemcpyAsync(a, b, n * sizeof(float), cudaMemcpyDeviceToDevice, stream));
	add<<<n / 256, 256, 0, stream>>>(a, b, n);
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < launches; i++)
		empty<<<1, 32, 0, stream>>>();
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < churn; i++) {
		CHECK(cudaMalloc(&p, 4 << 20));
		CHECK(cudaFree(p));
	}

	cudaGraph_t graph;
	cudaGraphExec_t exec;
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (int i = 0; i < captured; i++)
		add<<<16, 256, 0, stream>>>(a, b, 4096);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < replays; i++)
		CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));

	CHECK(cudaMalloc(&p, 12345678)); // leaked
	if (cudaMalloc(&p, 1ull << 50) != cudaErrorMemoryAllocation) {
		fprintf(stderr, "counts: an allocation of 1 PiB did not fail\n");
		return 1;
	}
	CHECK(cudaMemcpy(host.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost));

	printf("expect launch 0 %d\n", launches + 1 + captured + replays);
	printf("expect alloc 0 %d\n", 2 + 3 + churn + 1); // a and b; async, managed and host; churn; leaked
	printf("expect alloc 2 1\n");
	printf("expect free 0 %d\n", 3 + churn);
	printf("expect memcpy 0 4\n");
	printf("expect memset 0 1\n");
	return 0;
}
