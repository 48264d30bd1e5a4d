// Package hostcause describes how threads spent their time on the host: the parts that several reports share.
package hostcause
