/* UUIDs and PCI addresses of simulated devices. Driver and NVML must agree, because recorders
 * match their devices by UUID. */
#ifndef SIMCUDA_IDENTITY_H
#define SIMCUDA_IDENTITY_H

#include <stdint.h>

#define DEVICE_NAME "SimCUDA GPU"
#define DRIVER_VERSION "580.0-sim"
enum { CUDA_VERSION = 13000, UUID_TEXT = 41 /* "GPU-" + 36 characters + NUL */ };

void identity_uuid(int ordinal, unsigned char uuid[16]);
void identity_uuid_text(int ordinal, char out[UUID_TEXT]);
void identity_mig_uuid_text(int ordinal, int part, char out[UUID_TEXT]);
unsigned int identity_pci_bus(int ordinal);

#endif
