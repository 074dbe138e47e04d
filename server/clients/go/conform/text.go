package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	xuid "github.com/x-uid/xuid-go"
	"github.com/x-uid/xuid-go/internal/wiretest"
)

func text(n uint64) string { return strconv.FormatUint(n, 10) }

func texts(ids []uint64) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = text(id)
	}
	return all
}

func runTexts(runs []xuid.Run) []object {
	all := make([]object, len(runs))
	for i, run := range runs {
		all[i] = object{"first": text(run.First), "count": run.Count, "stride": strconv.FormatUint(uint64(run.Stride), 10)}
	}
	return all
}

func decoded(d xuid.Decoded) object {
	return object{"unix_ms": text(d.UnixMS), "worker": d.Worker, "sequence": d.Sequence}
}

func vectors(file string) (object, error) {
	bytes, err := os.ReadFile(file)
	if err != nil {
		return nil, &xuid.UsageError{Text: err.Error()}
	}
	counts, err := wiretest.CheckVectors(bytes)
	if err != nil {
		return nil, &vectorsError{err}
	}
	return object{"encoded": counts.Encoded, "decoded": counts.Decoded, "refused": counts.Refused}, nil
}

// describe is the error object of an answer.
func describe(err error) object {
	answer := object{"kind": kind(err), "text": err.Error()}
	var refused *xuid.RefusedError
	if errors.As(err, &refused) {
		answer["status"] = refused.Status.String()
		answer["code"] = int(refused.Status)
		answer["retry_after_ms"] = refused.RetryAfter.Milliseconds()
	}
	return answer
}

func kind(err error) string {
	var wrongCluster *xuid.WrongClusterError
	var refused *xuid.RefusedError
	var timeout *xuid.TimeoutError
	var lost *xuid.LostError
	var unreachable *xuid.UnreachableError
	var protocol *xuid.ProtocolError
	var usage *xuid.UsageError
	var vectors *vectorsError
	switch {
	case errors.As(err, &wrongCluster):
		return "wrong_cluster"
	case errors.As(err, &refused):
		return "refused"
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &lost):
		return "lost"
	case errors.As(err, &unreachable):
		return "unreachable"
	case errors.As(err, &protocol):
		return "protocol"
	case errors.As(err, &usage), errors.Is(err, errOpaque):
		return "usage"
	case errors.As(err, &vectors):
		return "vectors"
	case errors.Is(err, xuid.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "unsupported"
}
