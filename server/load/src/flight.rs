//! The requests of one connection that are in flight, in a fixed number of places.

/// The lowest bits of a request's number say its place; the others are new with each request, so that a reply that
/// comes twice finds nothing. `--pipeline` is 1,024 at most.
const PLACE_BITS: u32 = 16;

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// When it was meant to start.
    pub start: u64,
    /// When it was sent.
    pub at: u64,
}

/// A place, and the request in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The request's number; 0: none.
    number: u64,
    sent: Sent,
    floor: u64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Flight {
    places: Vec<Place>,
    free: Vec<u16>,
    last: u64,
}

impl Flight {
    /// Room for `places` requests.
    pub(crate) fn new(places: u32) -> Self {
        let places = places.clamp(1, 1 << PLACE_BITS);
        let none = Place { number: 0, sent: Sent { start: 0, at: 0 }, floor: 0 };
        Self {
            places: vec![none; places as usize],
            free: (0..places).rev().map(|place| place as u16).collect(),
            last: 0,
        }
    }

    /// How many are on their way.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// A number for a request that is sent now; `None` if all places are taken. `floor` is what its ids may not be below.
    #[inline]
    pub(crate) fn start(&mut self, sent: Sent, floor: u64) -> Option<u64> {
        let place = self.free.pop()?;
        self.last += 1 << PLACE_BITS;
        let number = self.last | u64::from(place);
        self.places[usize::from(place)] = Place { number, sent, floor };
        Some(number)
    }

    /// The request of that number is answered: when it was sent, and its floor. `None` if none of that number is on its
    /// way.
    #[inline]
    pub(crate) fn land(&mut self, number: u64) -> Option<(Sent, u64)> {
        let index = number as u16;
        let place = self.places.get_mut(usize::from(index))?;
        if place.number != number || number == 0 {
            return None;
        }
        place.number = 0;
        self.free.push(index);
        Some((place.sent, place.floor))
    }

    /// Those on their way.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Sent> {
        self.places.iter().filter(|place| place.number != 0).map(|place| place.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_lands_once_whatever_the_order() {
        let mut flight = Flight::new(3);
        let sent = |start| Sent { start, at: start + 1 };
        let numbers: Vec<u64> = (0..3).map(|start| flight.start(sent(start), start * 10).unwrap()).collect();
        assert!(flight.is_full() && flight.start(sent(9), 0).is_none());
        assert_eq!(flight.land(numbers[2]), Some((sent(2), 20)));
        assert_eq!(flight.land(numbers[2]), None, "twice");
        let again = flight.start(sent(7), 0).unwrap();
        assert!(again != numbers[2] && flight.land(numbers[2]).is_none(), "its place is another's now");
        for stranger in [0, 1, u64::MAX, again + 1] {
            assert_eq!(flight.land(stranger), None, "{stranger}");
        }
        assert_eq!((flight.len(), flight.iter().map(|sent| sent.start).max()), (3, Some(7)));
    }
}
