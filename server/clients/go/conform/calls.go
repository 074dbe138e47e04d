package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	xuid "github.com/x-uid/xuid-go"
)

func ids(ctx context.Context, c *xuid.Client, r *request) (object, error) {
	switch r.Do {
	case "next":
		order, err := order(r.Order, xuid.Any)
		if err != nil {
			return nil, err
		}
		return many(r, func() (uint64, error) { return c.Next(ctx, order) })
	case "array", "runs":
		choices, err := choices(r, xuid.Any)
		if err != nil {
			return nil, err
		}
		if r.Do == "array" {
			ids, err := c.Array(ctx, r.Count, choices...)
			return object{"ids": texts(ids)}, err
		}
		runs, err := c.Runs(ctx, r.Count, choices...)
		return object{"runs": runTexts(runs)}, err
	case "decode":
		d, err := c.Decode(ctx, uint64(r.Number))
		return decoded(d), err
	case "time_of":
		if c.Layout().IsOpaque() {
			return nil, errOpaque
		}
		return decoded(c.Layout().Decode(uint64(r.Number))), nil
	case "info":
		info, err := c.Info(ctx)
		return object{"info": info}, err
	case "stats":
		stats, err := c.Stats(ctx)
		return object{"stats": stats}, err
	case "ping":
		return nil, c.Ping(ctx)
	}
	return nil, errUnsupported
}

func sequence(ctx context.Context, c *xuid.Client, r *request) (object, error) {
	s := c.Sequence(r.Name)
	switch r.Do {
	case "seq_next":
		return many(r, func() (uint64, error) { return s.Next(ctx) })
	case "seq_array", "seq_runs":
		choices, err := choices(r, xuid.Ordered)
		if err != nil {
			return nil, err
		}
		switch {
		case r.Do == "seq_array":
			ids, err := s.Array(ctx, r.Count, choices...)
			return object{"ids": texts(ids)}, err
		case r.Contiguous:
			run, err := s.Take(ctx, r.Count, choices...)
			return object{"runs": runTexts([]xuid.Run{run})}, err
		}
		runs, err := s.Runs(ctx, r.Count, choices...)
		return object{"runs": runTexts(runs)}, err
	case "seq_info":
		info, err := s.Info(ctx)
		return object{"info": info.JSON}, err
	case "seq_create", "seq_alter":
		var settings []xuid.Setting
		for key, value := range r.Settings {
			settings = append(settings, xuid.Setting{Key: key, Value: value})
		}
		set := s.Create
		if r.Do == "seq_alter" {
			set = s.Alter
		}
		info, err := set(ctx, settings...)
		return object{"info": info.JSON}, err
	case "seq_list":
		limit := 1000
		if r.Limit != nil {
			limit = *r.Limit
		}
		list, err := c.Sequences(ctx, r.Prefix, r.After, limit)
		all := []json.RawMessage{}
		for _, info := range list {
			all = append(all, info.JSON)
		}
		return object{"list": all}, err
	}
	return nil, errUnsupported
}

// many calls next as often as asked for, so many at a time; the first error ends it.
func many(r *request, next func() (uint64, error)) (object, error) {
	times, width := r.Times, r.InFlight
	if times < 1 {
		times = 1
	}
	if width < 1 {
		width = 1
	}
	if width > times {
		width = times
	}
	var mu sync.Mutex
	var failure error
	got, left := make([]uint64, 0, times), times
	var open sync.WaitGroup
	for i := 0; i < width; i++ {
		open.Add(1)
		go func() {
			defer open.Done()
			for {
				mu.Lock()
				if left == 0 || failure != nil {
					mu.Unlock()
					return
				}
				left--
				mu.Unlock()
				id, err := next()
				mu.Lock()
				if err != nil && failure == nil {
					failure = err
				} else if err == nil {
					got = append(got, id)
				}
				mu.Unlock()
			}
		}()
	}
	open.Wait()
	return object{"ids": texts(got)}, failure
}

// source is the one prefetch, made at its first use.
func (p *program) source(c *xuid.Client) *xuid.Prefetch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prefetch == nil {
		p.prefetch = c.Prefetch()
	}
	return p.prefetch
}

func (p *program) draw(ctx context.Context, c *xuid.Client, r *request) (object, error) {
	source := p.source(c)
	ids := make([]uint64, 0, r.Times)
	for len(ids) < r.Times {
		id, err := source.Next(ctx)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return object{"ids": texts(ids), "held": source.Stats().Held}, nil
}

// looks is how many draws pass between two looks at the clock.
const looks = 10_000

func (p *program) rate(ctx context.Context, c *xuid.Client, r *request) (object, error) {
	handle := p.source(c).Handle()
	defer handle.Close()
	span := time.Duration(r.Seconds * float64(time.Second))
	measure := func(turn func() error) (uint64, error) {
		turns, begin := uint64(0), time.Now()
		for time.Since(begin) < span {
			for i := 0; i < looks; i++ {
				if err := turn(); err != nil {
					return 0, err
				}
			}
			turns += looks
		}
		return uint64(float64(turns) / time.Since(begin).Seconds()), nil
	}
	drawn, err := measure(func() error {
		_, err := handle.Next(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	counter := uint64(0)
	counted, err := measure(func() error {
		counter++
		return nil
	})
	return object{"ids_per_second": text(drawn), "loop_per_second": text(counted)}, err
}

func order(name string, otherwise xuid.Order) (xuid.Order, error) {
	for _, o := range []xuid.Order{xuid.Any, xuid.Fresh, xuid.Ordered} {
		if o.String() == name {
			return o, nil
		}
	}
	if name == "" {
		return otherwise, nil
	}
	return 0, &xuid.UsageError{Text: fmt.Sprintf("order %q is none: any, fresh and ordered are", name)}
}

func choices(r *request, otherwise xuid.Order) ([]xuid.Choice, error) {
	o, err := order(r.Order, otherwise)
	choices := []xuid.Choice{o}
	if r.WaitMS != nil {
		choices = append(choices, xuid.Wait(time.Duration(*r.WaitMS)*time.Millisecond))
	}
	return choices, err
}
