/*
 * The functions in which the host is late. All code of a function has the line of its macro, so a stack
 * of the delay has one true line.
 */
#include "hostwaits_chains.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 100000, PAGE = 4096 };

/* Counts calls that a signal interrupted before the end of the delay. */
#define NOTE_INTERRUPTION(l, failed)                                                  \
	do {                                                                          \
		if ((failed) && errno == EINTR && !atomic_load(&released))            \
			(l)->checksum += 1ull << 48;                                  \
	} while (0)

#define PLACE(name)                                                                                       \
	__attribute__((noinline)) static void name(struct loop *l, struct fault *f)                       \
	{                                                                                                 \
		char page[PAGE] = {0};                                                                    \
		fault_begin(l, f, __func__, __LINE__);                                                    \
		struct timespec t = {(time_t)(f->length_ns / 1000000000), (long)(f->length_ns % 1000000000)}; \
		if (f->chain)                                                                             \
			RECEIVE(&f->chain->members[0]);                                                   \
		else switch (f->kind) {                                                                        \
		case SLEEP: NOTE_INTERRUPTION(l, nanosleep(&t, NULL)); break;                             \
		case MUTEX:                                                                               \
			pthread_mutex_lock(&f->mutex);                                                    \
			pthread_mutex_unlock(&f->mutex);                                                  \
			break;                                                                            \
		case PIPE: NOTE_INTERRUPTION(l, read(f->pipe[0], page, 1) < 0); break;                    \
		case SLOW_FILE:                                                                           \
			NOTE_INTERRUPTION(l, pread(f->file, page, PAGE, (off_t)(f->length_ns / 1000) * PAGE) < 0); \
			break;                                                                            \
		case VFORK:                                                                               \
			f->child = vfork();                                                               \
			if (!f->child)                                                                    \
				fault_wait_for_child(f);                                                  \
			break;                                                                            \
		default:                                                                                  \
			do                                                                                \
				for (volatile int i = 0; i < TURNS; i++)                                  \
					;                                                                 \
			while (fault_computes(f));                                                     \
		}                                                                                         \
		l->checksum = l->checksum * 31 + (unsigned char)page[0];                                  \
		fault_end(l, f);                                                                          \
	}

PLACE(load_batch)
PLACE(tokenize_text)

PLACE(augment_images)
PLACE(collate_samples)


PLACE(write_metrics)
PLACE(clip_gradients)
PLACE(save_checkpoint)



PLACE(decode_audio)
PLACE(shuffle_samples)
PLACE(read_labels)

PLACE(log_progress)
PLACE(resize_pictures)

static void (*const places[])(struct loop *, struct fault *) = {
	load_batch,      tokenize_text, augment_images,  collate_samples, write_metrics, clip_gradients,
	save_checkpoint, decode_audio,  shuffle_samples, read_labels,     log_progress,  resize_pictures,
};

int place_count(void)
{
	return (int)(sizeof(places) / sizeof(*places));
}

void delay(struct loop *l, struct fault *f)
{
	places[f->function](l, f);
}
