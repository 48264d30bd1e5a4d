/*
 * Shareable handles of physical memory, and multicast objects. A shareable handle is a file
 * descriptor, as in the real driver, and can be sent to another process. The file contains the
 * process and number of the export. Imported memory is not charged to the importer, and the
 * exporter may end while it is imported.
 */
#include "memory.h"

#include "state.h"

#include <sys/mman.h>
#include <unistd.h>

#define TICKET_MAGIC 0x74656b6369744d53ull

struct ticket {
	uint64_t magic, id;
};

static CUresult export(void *out, struct object *o, CUmemAllocationHandleType type, unsigned long long flags)
{
	if (!out || !o || o->physical.multicast || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!o->physical.exported)
		o->physical.exported = state_export(o->physical.device ? o->physical.device->ordinal : -1, o->physical.size);
	struct ticket ticket = {TICKET_MAGIC, o->physical.exported};
	int fd = ticket.id ? memfd_create("simcuda-memory", MFD_CLOEXEC) : -1;
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (pwrite(fd, &ticket, sizeof(ticket), 0) != sizeof(ticket)) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					     CUmemAllocationHandleType handleType, unsigned long long flags)
{
	BEGIN(cuMemExportToShareableHandle, NEEDS_INIT, .ptr = handle);
	DO(export(shareableHandle, physical_of(handle), handleType, flags));
	return END();
}

static CUresult import(struct call *call, CUmemGenericAllocationHandle *out, int fd, CUmemAllocationHandleType type)
{
	struct ticket ticket;
	pid_t pid;
	int device;
	uint64_t size;
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pread(fd, &ticket, sizeof(ticket), 0) != sizeof(ticket) || ticket.magic != TICKET_MAGIC ||
	    !state_exported(ticket.id, &pid, &device, &size))
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(PHYSICAL, NULL);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->physical.size = size;
	o->physical.refs = 1;
	*out = call->ptr = H(o);
	return CUDA_SUCCESS;
}

/* osHandle is the file descriptor itself, not a pointer to it. */
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					       CUmemAllocationHandleType shHandleType)
{
	BEGIN(cuMemImportFromShareableHandle, NEEDS_INIT);
	DO(import(&call, handle, (int)(intptr_t)osHandle, shHandleType));
	return END();
}

static CUresult export_range(void *out, CUdeviceptr address, size_t size, unsigned long long flags)
{
	int fd = !out || !size || flags || !memory_is_on_device(address) ? -1 : memfd_create("simcuda-dma-buf", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, int handleType,
					      unsigned long long flags)
{
	enum { DMA_BUF_FD = 1 };
	BEGIN(cuMemGetHandleForAddressRange, NEEDS_CONTEXT, .ptr = dptr, .bytes = size);
	DO(handleType == DMA_BUF_FD ? export_range(handle, dptr, size, flags) : CUDA_ERROR_INVALID_VALUE);
	return END();
}

/* ---- multicast objects: accounting only ---- */

static bool is_valid(const CUmulticastObjectProp *p)
{
	return p && p->numDevices > 0 && p->numDevices <= (unsigned)config.devices && p->size > 0 && !p->flags;
}

static CUresult granularity(size_t *out, const CUmulticastObjectProp *prop)
{
	if (!out || !is_valid(prop))
		return CUDA_ERROR_INVALID_VALUE;
	*out = VMM_GRANULE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastGetGranularity(size_t *granularity_out, const CUmulticastObjectProp *prop,
					  CUmulticastGranularity_flags option)
{
	BEGIN(cuMulticastGetGranularity, NEEDS_INIT);
	(void)option;
	DO(granularity(granularity_out, prop));
	if (!call.result)
		call.bytes = *granularity_out;
	return END();
}

static CUresult create(struct call *call, CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop)
{
	if (!out || !is_valid(prop) || prop->size % VMM_GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(PHYSICAL, NULL);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->physical.multicast = true;
	o->physical.size = prop->size;
	o->physical.refs = 1;
	o->physical.devices_wanted = prop->numDevices;
	*out = call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
	BEGIN(cuMulticastCreate, NEEDS_INIT, .bytes = prop ? prop->size : 0, .value = prop ? prop->numDevices : 0);
	DO(create(&call, mcHandle, prop));
	return END();
}

static struct object *multicast_of(CUmemGenericAllocationHandle handle)
{
	struct object *o = physical_of(handle);
	return o && o->physical.multicast ? o : NULL;
}

static CUresult add_device(struct object *mc, CUdevice dev)
{
	if (!mc || !device_of(dev))
		return mc ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	if (mc->physical.devices_added & 1u << dev ||
	    (unsigned)__builtin_popcount(mc->physical.devices_added) == mc->physical.devices_wanted)
		return CUDA_ERROR_INVALID_VALUE;
	mc->physical.devices_added |= 1u << dev;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
	BEGIN(cuMulticastAddDevice, NEEDS_INIT, .ptr = mcHandle, .value = dev);
	DO(add_device(multicast_of(mcHandle), dev));
	return END();
}

/* Checks a bind. It fails until all devices of the multicast object were added. */
static CUresult bind(struct object *mc, uint64_t offset, bool memory_ok, uint64_t size, unsigned long long flags)
{
	if (!mc || !memory_ok || !size || offset % VMM_GRANULE || size % VMM_GRANULE || offset > mc->physical.size ||
	    size > mc->physical.size - offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned)__builtin_popcount(mc->physical.devices_added) != mc->physical.devices_wanted)
		return CUDA_ERROR_ILLEGAL_STATE;
	mc->physical.bound += size;
	return CUDA_SUCCESS;
}

static bool is_inside(const struct object *memory, uint64_t offset, uint64_t size)
{
	return memory && !memory->physical.multicast && offset <= memory->physical.size && size <= memory->physical.size - offset;
}

EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
				   size_t memOffset, size_t size, unsigned long long flags)
{
	BEGIN(cuMulticastBindMem, NEEDS_INIT, .ptr = mcHandle, .src_ptr = memHandle, .bytes = size, .value = (int64_t)mcOffset);
	DO(bind(multicast_of(mcHandle), mcOffset, is_inside(physical_of(memHandle), memOffset, size), size, flags));
	return END();
}

EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
				    unsigned long long flags)
{
	BEGIN(cuMulticastBindAddr, NEEDS_INIT, .ptr = mcHandle, .src_ptr = memptr, .bytes = size, .value = (int64_t)mcOffset);
	DO(bind(multicast_of(mcHandle), mcOffset, vmm_memory_at(memptr) != NULL, size, flags));
	return END();
}

static CUresult unbind(struct object *mc, CUdevice dev, uint64_t size)
{
	if (!mc || !device_of(dev) || !(mc->physical.devices_added & 1u << dev) || !size || size > mc->physical.bound)
		return CUDA_ERROR_INVALID_VALUE;
	mc->physical.bound -= size;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size)
{
	BEGIN(cuMulticastUnbind, NEEDS_INIT, .ptr = mcHandle, .bytes = size, .value = (int64_t)mcOffset);
	DO(unbind(multicast_of(mcHandle), dev, size));
	return END();
}
