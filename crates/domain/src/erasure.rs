//! Erasure: what stays of a resource when the person whom it is about is erased.
//!
//! Amounts, currencies, ids, states and times stay, because the books and their proof are of them.
//! Names, addresses, accounts and free text go, also those of others that stand in the person's own
//! records.

use crate::approval::{Approval, Remark};
use crate::customer::{Business, Customer, Identity, Individual};
use crate::delivery::{Delivery, Outcome};
use crate::external_account::ExternalAccount;
use crate::id::CustomerId;
use crate::invitation::{self, Invitation};
use crate::kyc::{CheckDraft, IdentityCheck};
use crate::lookup::{Lookup, PayWay, Receiver};
use crate::quote::{self, Quote};
use crate::rail::RailWords;
use crate::text::ERASED;
use crate::transaction::{self, Destination, Direction, Facts, RailRequest, Source, Transaction};
use crate::uma_address::UmaAddress;

/// The address of the others whom an erased person paid or was paid by. The domain is reserved
/// (RFC 2606): no host has it.
const OTHER: &str = "$erased@erased.invalid";

/// A resource about a person, who can be erased.
pub trait Erase: PartialEq + Sized {
    /// The resource without what is known of the person. Once erased, it stays as it is.
    #[must_use]
    fn erased(&self) -> Self;

    /// Whether it tells of the person: erasure would change it.
    fn tells_of_person(&self) -> bool {
        self.erased() != *self
    }

    /// The personal texts of the resource, if all of its personal data are texts.
    fn only_texts(&self) -> Option<Vec<&str>> {
        None
    }
}

/// The name of an erased customer at its platform: its id, which tells customers apart.
fn name_of(customer: CustomerId) -> String {
    customer.to_string()
}

/// The address of an erased customer, which no other has.
fn address_of(customer: CustomerId) -> UmaAddress {
    address(&format!("${}@erased.invalid", customer.uuid().simple()))
}

fn address(text: &str) -> UmaAddress {
    UmaAddress::parse(text).expect("it is written as one")
}

impl Erase for Customer {
    fn erased(&self) -> Self {
        let identity = match &self.identity {
            Identity::Individual(_) => Identity::Individual(Individual::default()),
            Identity::Business(_) => Identity::Business(Business {
                legal_name: ERASED.to_owned(),
                ..Business::default()
            }),
        };
        Self {
            platform_customer_id: name_of(self.id),
            uma_address: address_of(self.id),
            identity,
            ..self.clone()
        }
    }
}

impl Erase for ExternalAccount {
    fn erased(&self) -> Self {
        Self {
            platform_account_id: None,
            info: self.info.erased(),
            holder_name: None,
            ..self.clone()
        }
    }
}

impl Erase for Lookup {
    fn erased(&self) -> Self {
        let other = address(OTHER);
        let receiver = match &self.receiver {
            Receiver::Account(id) => Receiver::Account(*id),
            Receiver::Customer { customer, .. } => {
                Receiver::Customer { address: other, customer: *customer }
            }
            Receiver::Peer { way, .. } => Receiver::Peer {
                address: other,
                way: PayWay { callback: String::new(), ..way.clone() },
            },
        };
        Self { receiver, ..self.clone() }
    }
}

impl Erase for Quote {
    fn erased(&self) -> Self {
        let draft = self.draft();
        let uma = draft.uma.as_ref().map(|uma| quote::Uma {
            sender: own_address(draft.owner.customer()),
            payer: Facts::new(),
            route: match &uma.route {
                quote::Route::Here { customer } => quote::Route::Here { customer: *customer },
                // An invoice can carry a text for the payee.
                quote::Route::Lightning { msat, .. } => {
                    quote::Route::Lightning { invoice: String::new(), msat: *msat }
                }
            },
            ..uma.clone()
        });
        let draft = quote::Draft {
            source: erased_source(&draft.source),
            destination: erased_destination(&draft.destination),
            uma,
            ..draft.clone()
        };
        Self::restore(draft, self.history().to_vec()).expect("its states are as they were")
    }
}

impl Erase for Transaction {
    fn erased(&self) -> Self {
        let draft = self.draft();
        let own = own_address(draft.owner.customer());
        let uma = draft.uma.as_ref().map(|uma| {
            let (sender, receiver) = match draft.direction {
                Direction::Outgoing => (own, address(OTHER)),
                Direction::Incoming => (address(OTHER), own),
            };
            transaction::Uma {
                sender,
                receiver,
                counterparty: Facts::new(),
                payee: transaction::AboutPayee { given: Facts::new(), ..uma.payee.clone() },
                callback: None,
                ..uma.clone()
            }
        });
        let platform_customer_id = erased_name(draft);
        let draft = transaction::Draft {
            platform_customer_id,
            source: draft.source.as_ref().map(erased_source),
            destination: erased_destination(&draft.destination),
            uma,
            description: None,
            rail_request: RailRequest { remittance: None, ..draft.rail_request.clone() },
            ..draft.clone()
        };
        let (failure, reason) = (self.failure(), self.reason().cloned());
        let rail = (self.rail(), RailWords::NONE);
        Self::restore(draft, self.history().to_vec(), failure, reason, rail)
            .expect("its states are as they were")
    }

    /// Each change of a payment asks, and nearly always the name says so.
    fn tells_of_person(&self) -> bool {
        erased_name(self.draft()) != self.draft().platform_customer_id || self.erased() != *self
    }

    /// The platform's name for the customer, the memo, and texts to the rail and from it. A payment
    /// between UMA addresses has other personal data as well. The code of a rail is from a list,
    /// and is not personal.
    fn only_texts(&self) -> Option<Vec<&str>> {
        let (draft, words) = (self.draft(), self.rail_words());
        let is_of_addresses = draft.uma.is_some()
            || matches!(draft.source, Some(Source::Uma { .. }))
            || matches!(draft.destination, Destination::Uma { .. });
        let texts = [
            Some(&*draft.platform_customer_id),
            draft.description.as_deref(),
            draft.rail_request.remittance.as_deref(),
            words.text(),
            words.reference(),
        ];
        (!is_of_addresses).then(|| texts.into_iter().flatten().collect())
    }
}

fn own_address(owner: Option<CustomerId>) -> UmaAddress {
    owner.map_or_else(|| address(OTHER), address_of)
}

/// The name of an erased transaction's customer at its platform.
fn erased_name(draft: &transaction::Draft) -> String {
    draft.owner.customer().map_or_else(|| draft.platform_customer_id.clone(), name_of)
}

fn erased_source(source: &Source) -> Source {
    match source {
        Source::Uma { .. } => Source::Uma { address: address(OTHER) },
        Source::Account { .. } | Source::RealtimeFunding { .. } => source.clone(),
    }
}

fn erased_destination(destination: &Destination) -> Destination {
    match *destination {
        Destination::Uma { currency, .. } => Destination::Uma { address: address(OTHER), currency },
        Destination::Account { .. } => destination.clone(),
    }
}

impl Erase for Approval {
    fn erased(&self) -> Self {
        let remark = Remark { reason: None, ..self.remark().clone() };
        let times = [self.asked_at(), self.decide_by(), self.updated_at()];
        Self::restore(self.transaction(), self.platform(), self.status(), times, remark)
            .expect("its times are as they were")
    }
}

impl Erase for Delivery {
    fn erased(&self) -> Self {
        let mut progress = self.progress().clone();
        for attempt in &mut progress.attempts {
            // An endpoint may answer with what it was sent.
            if let Outcome::Answered { body, .. } = &mut attempt.outcome {
                body.clear();
            }
        }
        Self::restore(*self.draft(), progress).expect("its times are as they were")
    }
}

impl Erase for Invitation {
    fn erased(&self) -> Self {
        let draft = self.draft();
        let draft = invitation::Draft {
            inviter_uma: address_of(draft.inviter),
            first_name: None,
            ..draft.clone()
        };
        let end = self.end().map(|end| {
            let event = match &end.event {
                invitation::Event::Claimed(_) => invitation::Event::Claimed(address(OTHER)),
                other => other.clone(),
            };
            invitation::End { event, at: end.at }
        });
        Self::restore(draft, end).expect("its end is as it was")
    }
}

impl Erase for IdentityCheck {
    fn erased(&self) -> Self {
        let draft = CheckDraft { redirect_uri: None, ..self.draft().clone() };
        Self::restore(draft, self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_erased_customer_has_an_address_of_its_own() {
        let customer = |number| CustomerId::from_uuid(uuid::Uuid::from_u128(number));
        assert_ne!(address_of(customer(1)), address_of(customer(2)));
        assert_ne!(address_of(customer(1)), address(OTHER));
        assert_eq!(address_of(customer(1)).domain(), address(OTHER).domain());
    }
}
