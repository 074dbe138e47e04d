package ahead

import "time"

const (
	// lead is how long what is held shall last, though round trips be shorter: a goroutine that is scheduled late must not
	// be noticed.
	lead = 10 * time.Millisecond
	// roundTrips it shall last. Half of it is used up when more is asked for, so that two are left.
	roundTrips = 4
	// growth is how much the level may grow from one look to the next. One greedy moment must not fetch ids for an hour.
	growth = 4
)

// size is how many ids to hold ahead: what was used lately, for as long as it takes to get more. It knows the clock only by
// what it is told.
type size struct {
	least, most uint64
	maxAge      time.Duration
	level       uint64
	// roundTrip is the shortest lately: what waits in line at a busy server is no reason to ask it for more.
	roundTrip time.Duration
	looked    time.Duration
	taken     uint64
	// request is the most ids of one request, which a server that has not so many lowers.
	request uint64
}

func newSize(least, most uint64, maxAge, now time.Duration) size {
	return size{least: least, most: most, maxAge: maxAge, level: least, looked: now, request: most}
}

// look is the level to refill to, where taken is the number of ids ever taken.
func (s *size) look(now time.Duration, taken uint64) uint64 {
	elapsed, used := now-s.looked, taken-s.taken
	span := lead
	if trips := s.roundTrip * roundTrips; trips > span {
		span = trips
	}
	if span > s.maxAge/4 {
		span = s.maxAge / 4
	}
	// A microsecond at least, so that two looks at once do not make an endless rate.
	over := elapsed
	if over < time.Microsecond {
		over = time.Microsecond
	}
	wanted := clamp(uint64(clampFloat(float64(used)*float64(span)/float64(over), float64(s.most)))+1, 0, s.most)
	// A user that was away for long is a new one; a user that only pauses between bursts is not.
	least := s.level / 2
	if elapsed >= s.maxAge {
		least = 0
	}
	s.level = clamp(clamp(wanted, least, s.level*growth), s.least, s.most)
	s.looked, s.taken = now, taken
	return s.level
}

// answered: a refill came after that time. The round trip may get longer, slowly: by an eighth a refill.
func (s *size) answered(roundTrip time.Duration) {
	slower := s.roundTrip + s.roundTrip/8 + time.Microsecond
	if s.roundTrip == 0 || roundTrip < slower {
		s.roundTrip = roundTrip
	} else {
		s.roundTrip = slower
	}
	s.request = clamp(s.request*2, s.least, s.most)
}

// failed: a refill of so many ids was refused. The next one asks for half.
func (s *size) failed(count uint64) { s.request = clamp(count/2, s.least, s.most) }

// wasted: something grew old. It was too much.
func (s *size) wasted() { s.level = clamp(s.level/2, s.least, s.most) }

func clamp(n, least, most uint64) uint64 {
	if n < least {
		return least
	}
	if n > most {
		return most
	}
	return n
}

func clampFloat(n, most float64) float64 {
	if n > most {
		return most
	}
	return n
}
