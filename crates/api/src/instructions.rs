//! Ways to pay in (specification 2.5, 2.10; contract 6.6).

use domain::account_info::Holder;
use ports::rail::{Deposit, FundingInstruction};
use ports::rails::Rails;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// One way to pay in.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PaymentInstructions)]
pub struct InstructionsBody {
    /// The account or wallet to pay to; `accountType` selects the variant.
    #[schema(value_type = PaymentInstructionInfo)]
    account_or_wallet_info: Map<String, Value>,
    /// Notes for the payer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    instructions_notes: Option<String>,
    /// Whether the deposit goes to the platform's own account.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    is_platform_account: Option<bool>,
}

/// Stands for the schema that the one table of account types writes into the document.
#[derive(ToSchema)]
pub struct PaymentInstructionInfo {}

impl InstructionsBody {
    fn new(instruction: FundingInstruction, is_platform_account: Option<bool>) -> Self {
        let account_type = instruction.account_type;
        let mut info = Map::new();
        info.insert("accountType".to_owned(), json!(account_type.name));
        if matches!(account_type.holder, Holder::Beneficiary { .. }) {
            let rails: Vec<_> = account_type.rails.iter().map(|rail| rail.name()).collect();
            info.insert("paymentRails".to_owned(), json!(rails));
        }
        for (name, value) in instruction.fields {
            info.insert(name.to_owned(), json!(value));
        }
        Self {
            account_or_wallet_info: info,
            instructions_notes: Some(instruction.notes),
            is_platform_account,
        }
    }
}

/// Every way to make a deposit over these rails, and over the network if one was named.
pub fn of_rails(
    rails: &Rails,
    deposit: &Deposit<'_>,
    network: Option<&str>,
    is_platform_account: Option<bool>,
) -> Vec<InstructionsBody> {
    rails
        .instructions(deposit)
        .into_iter()
        .filter(|one| network.is_none_or(|network| one.account_type.is_on(network)))
        .map(|instruction| InstructionsBody::new(instruction, is_platform_account))
        .collect()
}
