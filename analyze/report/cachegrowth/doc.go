// Package cachegrowth finds caching allocators, such as PyTorch's, whose unused memory grows while
// the live memory does not, and the cause of the growth.
package cachegrowth
