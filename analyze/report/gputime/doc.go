// Package gputime has the columns of GPU times, which several reports share.
package gputime
