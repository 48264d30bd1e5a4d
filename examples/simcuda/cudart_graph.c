/* Runtime API: stream capture and graphs, host functions, registered memory and 2D copies. */
#include "cudart_driver.h"

#include <stdbool.h>

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	FORWARD(driver.cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
	FORWARD(driver.cuStreamEndCapture(stream, pGraph));
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
	FORWARD(driver.cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)pCaptureStatus));
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned long long flags)
{
	FORWARD(driver.cuGraphInstantiate(pGraphExec, graph, flags));
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
	FORWARD(driver.cuGraphLaunch(graphExec, stream));
}

EXPORT cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graphExec, cudaStream_t stream)
{
	FORWARD(driver.cuGraphLaunch_ptsz(graphExec, stream));
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
	FORWARD(driver.cuGraphExecDestroy(graphExec));
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	FORWARD(driver.cuGraphDestroy(graph));
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
	FORWARD(driver.cuLaunchHostFunc(stream, fn, userData));
}

EXPORT cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
	FORWARD(driver.cuMemHostRegister(ptr, size, flags));
}

EXPORT cudaError_t cudaHostUnregister(void *ptr)
{
	FORWARD(driver.cuMemHostUnregister(ptr));
}

/* Fills *c with the parameters of a 2D copy. cudaMemcpyDefault maps to unified memory types: the
 * driver derives the direction from the pointers. */
static bool rows(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind,
		 CUDA_MEMCPY2D *c)
{
	bool from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
	bool to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
	bool given = kind != cudaMemcpyDefault;
	*c = (CUDA_MEMCPY2D){
		.srcMemoryType = !given ? CU_MEMORYTYPE_UNIFIED : from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.srcHost = src, .srcDevice = D(src), .srcPitch = spitch,
		.dstMemoryType = !given ? CU_MEMORYTYPE_UNIFIED : to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.dstHost = dst, .dstDevice = D(dst), .dstPitch = dpitch,
		.WidthInBytes = width, .Height = height,
	};
	return (unsigned)kind <= cudaMemcpyDefault;
}

EXPORT cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
				enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY2D c;
	FORWARD(rows(dst, dpitch, src, spitch, width, height, kind, &c) ? driver.cuMemcpy2DUnaligned(&c)
									: (CUresult)cudaErrorInvalidMemcpyDirection);
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
				     enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUDA_MEMCPY2D c;
	FORWARD(rows(dst, dpitch, src, spitch, width, height, kind, &c) ? driver.cuMemcpy2DAsync(&c, stream)
									: (CUresult)cudaErrorInvalidMemcpyDirection);
}
