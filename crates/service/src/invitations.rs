//! Invitations (specification 2.13, 3.4; contract 6.13). No money moves here: the inviter who
//! promised to send some is notified of the claim and sends it.

use std::sync::Arc;

use domain::code::{CODE_LENGTH, Code};
use domain::customer::Customer;
use domain::event::EventKind;
use domain::id::{InvitationId, PlatformId};
use domain::invitation::{Draft, Event, Invitation, Status};
use domain::platform::Platform;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use store::error::StoreError;
use store::reader::View;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::{AccountError, CustomerError, Error, InvitationError, UmaError};
use crate::presenter::Subject;
use crate::{limits, owners};

/// A platform's request for a new invitation.
#[derive(Debug, Clone)]
pub struct NewInvitation {
    /// The address of one of its customers.
    pub inviter_uma: String,
    /// The inviter's first name.
    pub first_name: Option<String>,
    /// The amount that the platform will send after the claim, in smallest units of the inviter's
    /// primary currency (contract 13, row 37).
    pub amount_minor: Option<i64>,
    /// Until when it can be claimed; for ever without it.
    pub expires_at: Option<Timestamp>,
}

/// Draws the code of a new invitation, so that a repeat of the unit makes the same one.
pub fn draw(app: &App) -> Code {
    Code::of_random(app.random::<CODE_LENGTH>())
}

/// Makes an invitation, which expires by itself.
pub fn create(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewInvitation,
    code: &Code,
    now: Timestamp,
) -> Result<Invitation, Error> {
    let platform = owners::platform(unit, platform)?;
    let (inviter, inviter_uma) = inviter(unit, &platform, &new.inviter_uma)?;
    let primary = platform.primary_currency();
    let amount_to_send = match (new.amount_minor, primary) {
        (None, _) => None,
        (Some(_), None) => {
            let message = "needs a currency, and this platform supports none";
            return Err(Error::field("amountToSend", message));
        }
        (Some(minor), Some(currency)) => {
            let amount = limits::amount(minor, currency)?;
            limits::sendable(&platform, amount)?;
            Some(amount)
        }
    };
    if new.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(Error::field("expiresAt", format!("must be later than now, {now}")));
    }
    let id = unit.keyring().invitation(code);
    if let Some(due_at) = new.expires_at {
        unit.set_timer(Timer::new(&platform, id.uuid(), TimerKind::ExpireInvitation, due_at, now));
    }
    // Read before it is written, as every row is; 80 random bits are there once.
    if unit.get::<Invitation>(&id)?.is_some() {
        return Err(Error::Internal("a code was drawn twice".to_owned()));
    }
    let invitation = Invitation::pending(Draft {
        id,
        code: code.clone(),
        platform: platform.id,
        inviter: inviter.id,
        inviter_uma,
        first_name: new.first_name.clone(),
        amount_to_send,
        expires_at: new.expires_at,
        created_at: now,
    });
    unit.put(invitation.clone());
    Ok(invitation)
}

/// The platform's customer with this address. Another platform's customer does not count.
fn inviter(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    text: &str,
) -> Result<(Customer, UmaAddress), Error> {
    let refused =
        |reason: String| Error::Uma(UmaError::InvalidAddress { address: text.to_owned(), reason });
    let address = UmaAddress::parse(text).map_err(|error| refused(error.to_string()))?;
    let unknown = || refused(format!("{address} is no address of a customer of this platform"));
    let customer = customer_at(unit, platform.id, &address)?.ok_or_else(unknown)?;
    Ok((Customer::clone(&customer), address))
}

/// The customer of a platform that has this address now. One that was deleted is refused.
fn customer_at(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    address: &UmaAddress,
) -> Result<Option<Arc<Customer>>, Error> {
    let Some(customer) = unit.claim(address)? else { return Ok(None) };
    let found = unit.get::<Customer>(&customer)?;
    let found = found.filter(|it| it.platform == platform && it.uma_address == *address);
    match found {
        Some(customer) if customer.is_deleted => {
            Err(Error::Customer(CustomerError::Deleted { id: customer.id }))
        }
        found => Ok(found),
    }
}

/// An invitation, for any reader.
pub struct Found {
    /// The invitation.
    pub invitation: Arc<Invitation>,
    /// The platform that made it, by whose clock it expires.
    pub made_by: Arc<Platform>,
}

/// Looks for an invitation.
pub fn find(view: &mut View<'_>, id: InvitationId) -> Result<Option<Found>, StoreError> {
    let Some(invitation) = view.get::<Invitation>(&id)? else { return Ok(None) };
    let made_by = view.get::<Platform>(&invitation.draft().platform)?;
    Ok(made_by.map(|made_by| Found { invitation, made_by }))
}

/// An invitation of which `asker` has the code. Real money and sandbox never
/// meet (contract 1.2): for a platform of the other mode there is no invitation.
fn known(unit: &mut Unit<'_, '_>, asker: PlatformId, id: InvitationId) -> Result<Found, Error> {
    let invitation =
        unit.get::<Invitation>(&id)?.ok_or(Error::Invitation(InvitationError::NotFound))?;
    let made_by = owners::platform(unit, invitation.draft().platform)?;
    if owners::platform(unit, asker)?.mode != made_by.mode {
        return Err(Error::Invitation(InvitationError::NotFound));
    }
    Ok(Found { invitation, made_by })
}

/// The invitation, if it is still open at `now`. The holder of its code may know that it is there.
fn open(invitation: &Invitation, now: Timestamp) -> Result<Invitation, Error> {
    match invitation.status_at(now) {
        Status::Pending => Ok(invitation.clone()),
        status @ (Status::Claimed | Status::Expired | Status::Cancelled) => {
            Err(Error::Invitation(InvitationError::Over {
                status,
                invitee: invitation.claim().map(|(invitee, _)| invitee.clone()),
                expires_at: invitation.draft().expires_at,
            }))
        }
    }
}

/// Claims an invitation for a customer of the platform that asks. Any platform of the same mode
/// that has the code may, and the inviter's platform is notified.
pub fn claim(
    app: &App,
    unit: &mut Unit<'_, '_>,
    claimer: PlatformId,
    id: InvitationId,
    invitee: &UmaAddress,
    server_now: Timestamp,
) -> Result<Invitation, Error> {
    let Found { invitation, made_by } = known(unit, claimer, id)?;
    // The claimer may be another platform: the time to claim is that of the inviter's.
    let now = made_by.ahead.shows(server_now);
    let invitation = open(&invitation, now)?;
    let draft = invitation.draft();
    let invited = unit.claim(invitee)?;
    if *invitee == draft.inviter_uma || invited == Some(draft.inviter) {
        return Err(Error::Account(AccountError::SelfPayment));
    }
    // The inviter's platform pays this address: no platform names that of a stranger.
    if customer_at(unit, claimer, invitee)?.is_none() {
        let message = format!(
            "{invitee} is no address of a customer of this platform; create the customer first"
        );
        return Err(Error::field("inviteeUma", message));
    }
    let invitation = end(unit, invitation, Event::Claimed(invitee.clone()), now)?;
    // An invitation notifies once: there is one event in its life.
    let (kind, subject) = (EventKind::InvitationClaimed, Subject::Invitation(&invitation));
    unit.add_event(app.env().event(&made_by, kind, (id.uuid(), 1), now, subject))?;
    Ok(invitation)
}

/// Takes an invitation back. Only the platform that made it may.
pub fn cancel(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: InvitationId,
    now: Timestamp,
) -> Result<Invitation, Error> {
    let Found { invitation, made_by } = known(unit, platform, id)?;
    if made_by.id != platform {
        return Err(Error::Invitation(InvitationError::OfAnother));
    }
    let invitation = open(&invitation, now)?;
    end(unit, invitation, Event::Cancelled, now)
}

/// Ends an invitation whose time is over. One that has ended in the meantime stays as it is.
pub(crate) fn expire(
    unit: &mut Unit<'_, '_>,
    id: InvitationId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(invitation) = unit.get::<Invitation>(&id)? else { return Ok(()) };
    if invitation.status() == Status::Pending {
        end(unit, Invitation::clone(&invitation), Event::Expired, now)?;
    }
    Ok(())
}

/// Moves an invitation. Once it is not pending, nothing is left to expire.
fn end(
    unit: &mut Unit<'_, '_>,
    invitation: Invitation,
    event: Event,
    now: Timestamp,
) -> Result<Invitation, Error> {
    let moved = invitation.apply(event, now)?;
    let invitation = moved.now().clone();
    unit.clear_timer((invitation.id().uuid(), TimerKind::ExpireInvitation));
    unit.put_moved(moved);
    Ok(invitation)
}
