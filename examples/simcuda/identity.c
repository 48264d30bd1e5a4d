#include "identity.h"

#include <stdio.h>
#include <string.h>

/* Writes the device's UUID. The first byte is the ordinal, so that the abbreviated UUIDs that
 * tools print differ too. */
void identity_uuid(int ordinal, unsigned char uuid[16])
{
	static const unsigned char pattern[16] = {0x50, 0x51, 0x4d, 0x43, 0x0d, 0xa0, 0x4a, 0x11,
						  0x80, 0x00, 0x67, 0x70, 0x75, 0x72, 0x65, 0x63};
	memcpy(uuid, pattern, sizeof(pattern));
	uuid[0] = (unsigned char)(pattern[0] + ordinal);
}

static void uuid_text(const char *kind, const unsigned char u[16], char out[UUID_TEXT])
{
	snprintf(out, UUID_TEXT, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, u[0], u[1], u[2],
		 u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void identity_uuid_text(int ordinal, char out[UUID_TEXT])
{
	unsigned char u[16];
	identity_uuid(ordinal, u);
	uuid_text("GPU", u, out);
}

/* Writes the UUID of a MIG device: the device's UUID with the MIG number in the second byte. */
void identity_mig_uuid_text(int ordinal, int part, char out[UUID_TEXT])
{
	unsigned char u[16];
	identity_uuid(ordinal, u);
	u[0] = (unsigned char)(0xa0 + ordinal);
	u[1] = (unsigned char)(0x10 + part);
	uuid_text("MIG", u, out);
}

unsigned int identity_pci_bus(int ordinal)
{
	return 0x06u + 0x11u * (unsigned int)ordinal;
}
